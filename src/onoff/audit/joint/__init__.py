"""What does a whole stream tell? `onoff audit joint` and `switching`."""
