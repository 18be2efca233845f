//! Flower apps that come with the program.
