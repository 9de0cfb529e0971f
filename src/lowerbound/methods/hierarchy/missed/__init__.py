"""What Gaussians given theta miss of log p, and what that does to theta, means and sds."""
