"""Rules by primitive: how the jaxpr of a program's parameters is read as terms."""
