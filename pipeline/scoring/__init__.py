"""What translations are measured by, and whether systems differ."""
