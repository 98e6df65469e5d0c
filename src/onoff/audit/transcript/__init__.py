"""What does a server's log betray? `onoff audit transcript`."""
