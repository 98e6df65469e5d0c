"""What if people are not Markov? `onoff audit real`."""
