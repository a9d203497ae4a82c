"""What a machine and its services must have, and what to do where they have not."""
