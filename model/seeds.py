"""Seeds that follow from what they are for, so that no generator's state need be kept."""


def derive_seed(*values: int) -> int:
    """Mix integers to 63 bits; any change of any of them changes about half of the bits.

    The mixing is SplitMix64's (Steele et al., 2014).
    """
    mixed = 0
    for value in values:
        mixed = (mixed + value + 0x9E3779B97F4A7C15) % 2**64
        mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EB % 2**64
        mixed ^= mixed >> 31
    return mixed >> 1
