"""Reading, checking, downloading and rotating images. Tests on the real MNIST run when SFCNN_DATA is set."""
