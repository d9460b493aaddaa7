//! What an author needs to put any hardware behind a .tflite model.
