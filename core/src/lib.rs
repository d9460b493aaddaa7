//! What a .tflite model is: loader, graph, op definitions and versions, kernel and resolver traits.
