"""Has no ClientApp."""

app = 3
