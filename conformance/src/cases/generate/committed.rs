//! Whole models of the repository.

use std::sync::Arc;

use delegraph_core::{Model, ModelBytes};

use super::super::prelude::*;

macro_rules! digits {
    ($name:literal) => {
        ($name, include_bytes!(concat!("../../../models/digits_", $name, ".tflite")))
    };
}

/// Small classifiers of handwritten digits.
const DIGITS: [(&str, &[u8]); 4] =
    [digits!("float32"), digits!("float16"), digits!("dynamic_range"), digits!("int8")];

pub(super) fn cases(out: &mut Vec<Case>) {
    for (name, bytes) in DIGITS {
        let make = Arc::new(move || Ok(Model::from_bytes(ModelBytes::new(bytes.to_vec()))?));
        let image = match name {
            "int8" => x(Int8, &[1, 8, 8, 1]),
            _ => x(Float32, &[1, 8, 8, 1]).range(0.0, 1.0),
        };
        let case = Case::made(Op::CONV_2D, make, [image]).in_family("models").steps(2);
        out.push(case.detail(format!("digits_{name}")));
    }
}
