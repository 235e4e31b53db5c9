"""What an autograd graph keeps alive."""
