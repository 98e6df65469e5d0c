"""Is this plan what it says? `onoff audit plan`."""
