"""`sfcnn segment`: train and use a network that classifies pixels, and find cells between membranes."""
