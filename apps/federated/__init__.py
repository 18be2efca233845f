"""What the ServerApps and ClientApps of the catalogue have in common. A copy of it is part of each app."""
