"""Machines that do what comes to their mind, and rules that must hold after each step."""
