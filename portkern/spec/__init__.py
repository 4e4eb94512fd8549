"""What is asked: operators, targets, candidates, backends, and where each is found."""
