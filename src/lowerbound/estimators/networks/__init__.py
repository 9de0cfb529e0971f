"""Networks (paper section 4.2): nodes with a block each, or a share in each of several."""
