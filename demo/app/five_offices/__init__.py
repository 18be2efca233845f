"""Five post offices learn to sort letters without showing each other one: a Flower app with numpy, and nothing of Trellis."""
