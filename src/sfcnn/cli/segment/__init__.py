"""`sfcnn segment`: train and use a network that tells classes of pixels, and find cells between membranes."""
