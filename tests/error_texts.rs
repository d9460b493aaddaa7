//! The complete error messages for damaged models, and for models newer than this build.
//!
//! Each case is one of the embedded models with one or two changed fields.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)] // Clippy recognizes only `#[test]` functions as tests.

mod common;

use common::tree::{read, remove, set, write};
use delegraph::core::BuiltinOp;
use delegraph::core::error::ErrorKind;
use delegraph::core::ops::{DEFS, definition};
use delegraph::core::resolver::newest_runtime;
use delegraph::{Error, Interpreter, Model, ModelBytes, MutableOpResolver};
use serde_json::{Value, json};

type Case = (&'static str, fn(&mut Value), &'static str);

fn digits() -> Value {
    read(&std::fs::read(common::digits("digits_int8.tflite")).unwrap())
}

/// Loads a changed model and builds an interpreter for it.
fn build(edit: impl FnOnce(&mut Value)) -> Result<Interpreter, Error> {
    let mut model = digits();
    edit(&mut model);
    Interpreter::builder(Model::from_bytes(ModelBytes::new(write(&model)))?).build()
}

/// Changes the op of operator code 5, which only SOFTMAX uses, in node 8.
fn softmax_to(model: &mut Value, code: i32) {
    set(model, "/operator_codes/5/builtin_code", code);
    // The field of old files holds codes up to 127 only.
    set(model, "/operator_codes/5/deprecated_builtin_code", code.min(127));
}

/// Changes the kind of the quantization of tensor 3, which is per channel.
fn quantize(model: &mut Value, kind: u8, details: Value) {
    set(model, "/subgraphs/0/tensors/3/quantization/details_type", kind);
    set(model, "/subgraphs/0/tensors/3/quantization/details", details);
}

/// Replaces the names of numbers that grow with the op table.
fn current(text: &str) -> String {
    let versions = |op| format!("1 to {}", definition(op).unwrap().history.last().unwrap().0);
    let last = DEFS.iter().map(|def| def.op.0).max().unwrap();
    text.replace("{SOFTMAX}", &versions(BuiltinOp::SOFTMAX))
        .replace("{CONV_2D}", &versions(BuiltinOp::CONV_2D))
        .replace("{codes}", &format!("0 to {last}"))
        .replace("{release}", newest_runtime())
}

fn check(cases: &[Case], kind: ErrorKind, text: impl Fn(&Error) -> String) {
    let mut wrong = String::new();
    for (name, edit, expected) in cases {
        match build(edit) {
            Ok(_) => wrong += &format!("{name}: no error\n"),
            Err(error) if text(&error) == current(expected) && error.kind() == kind => {}
            Err(error) => wrong += &format!("{name}, {:?}:\n{}\n\n", error.kind(), text(&error)),
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

/// The message and, below, the next step.
fn with_help(error: &Error) -> String {
    format!("{error}\nhelp: {}", error.help().unwrap())
}

#[test]
fn what_needs_more_than_there_is() {
    check(UNSUPPORTED, ErrorKind::Unsupported, with_help);
}

#[test]
fn what_is_damaged() {
    let help = "the file is damaged, was not written as a .tflite model, or is newer than this build; fetch or \
                export it again";
    check(INVALID, ErrorKind::Invalid, |error| {
        assert_eq!(error.help().unwrap(), help);
        error.to_string().strip_prefix("invalid model: ").unwrap().to_owned()
    });
}

#[test]
fn accepted_models() {
    assert!(build(|_| {}).is_ok());
    // The metadata requires a newer runtime, but nothing in the model needs one.
    assert!(build(|m| set(m, "/buffers/24/data", json!(b"99.0.0\0"))).is_ok());
    let unused = |m: &mut Value| {
        set(m, "/operator_codes/-", json!({ "builtin_code": 32 }));
        set(m, "/operator_codes/-", json!({ "builtin_code": 999, "version": -3 }));
    };
    assert!(build(unused).is_ok(), "operator codes that no node uses");
    // Converters write a scale of 0 for channels whose weights are all zero.
    let zeros = build(|m| set(m, "/subgraphs/0/tensors/13/quantization/scale/3", 0.0));
    assert!(zeros.is_ok(), "a channel of zeros: {:?}", zeros.err());
    // Both fields of the code are read, and the greater counts.
    assert!(build(|m| remove(m, "/operator_codes/5/builtin_code")).is_ok());
    assert!(build(|m| remove(m, "/operator_codes/5/deprecated_builtin_code")).is_ok());
}

#[test]
fn a_resolver_without_the_op() {
    let model = Model::from_bytes(ModelBytes::new(write(&digits()))).unwrap();
    let error = Interpreter::builder(model).resolver(MutableOpResolver::new()).build().err().unwrap();
    let text = error.to_string();
    let softmax = r#"
  SOFTMAX version 2: TFLite has it since 1.14.0; the op is known, but no version of it is registered here
    at node 8 (writes "StatefulPartitionedCall_1:0")"#;
    assert!(text.starts_with("6 ops have no kernel:\n") && text.ends_with(softmax), "{text}");
}

const UNSUPPORTED: &[Case] = &[
    (
        "a version from the future",
        |m| set(m, "/operator_codes/5/version", 99),
        r#"1 op has no kernel:
  SOFTMAX version 99: newer than any version that this build knows ({SOFTMAX}); registered here: {SOFTMAX}
    at node 8 (writes "StatefulPartitionedCall_1:0")
help: a newer release of Delegraph may have it; or register a kernel of your own: `resolver.add_builtin(BuiltinOp::SOFTMAX, registration, 99)`"#,
    ),
    (
        "an operator from the future",
        |m| softmax_to(m, 300),
        r#"1 op has no kernel:
  builtin operator 300 version 2: no such operator is known; this build knows the codes {codes}
    at node 8 (writes "StatefulPartitionedCall_1:0")
help: a newer release of Delegraph may know the operator"#,
    ),
    (
        "a custom op",
        |m| {
            softmax_to(m, 32);
            set(m, "/operator_codes/5/custom_code", "Frobnicate")
        },
        r#"1 op has no kernel:
  custom op "Frobnicate" version 2: no custom op of this name is registered
    at node 8 (writes "StatefulPartitionedCall_1:0")
help: register a kernel for it: `resolver.add_custom("Frobnicate", registration, 2)`, or load a library that has one: `--ops plugin:PATH`"#,
    ),
    (
        "TensorFlow's own op",
        |m| {
            softmax_to(m, 32);
            set(m, "/operator_codes/5/custom_code", "FlexErf")
        },
        r#"1 op has no kernel:
  custom op "FlexErf" version 2: no custom op of this name is registered
    at node 8 (writes "StatefulPartitionedCall_1:0")
help: ops whose names start with "Flex" are TensorFlow's own: convert the model again with TFLite's builtin ops only (without SELECT_TF_OPS)"#,
    ),
    (
        "several ops at once, and a newer runtime",
        |m| {
            set(m, "/operator_codes/0/version", 99);
            softmax_to(m, 32);
            set(m, "/operator_codes/5/custom_code", "Frobnicate");
            set(m, "/buffers/24/data", json!(b"99.0.0\0".to_vec()));
        },
        r#"2 ops have no kernel:
  CONV_2D version 99: newer than any version that this build knows ({CONV_2D}); registered here: {CONV_2D}
    at node 0 (writes "functional_1_1/digits_1/conv2d_1/Relu;functional_1_1/digits_1/conv2d_1/BiasAdd;f…")
    at node 2 (writes "functional_1_1/digits_1/conv2d_1_2/Relu;functional_1_1/digits_1/conv2d_1_2/BiasA…")
    at node 4 (writes "functional_1_1/digits_1/conv2d_2_1/Relu;functional_1_1/digits_1/conv2d_2_1/BiasA…")
  custom op "Frobnicate" version 2: no custom op of this name is registered
    at node 8 (writes "StatefulPartitionedCall_1:0")
  the model's metadata asks for TFLite 99.0.0; this build's op table reaches {release}
help: a newer release of Delegraph may have it; or register a kernel of your own: `resolver.add_builtin(BuiltinOp::CONV_2D, registration, 99)`
register a kernel for it: `resolver.add_custom("Frobnicate", registration, 2)`, or load a library that has one: `--ops plugin:PATH`"#,
    ),
    (
        "weights in another file",
        |m| {
            set(m, "/subgraphs/0/tensors/3/external_buffer", 1);
            set(m, "/subgraphs/0/tensors/5/external_buffer", 1);
            set(m, "/external_buffers", json!([{"id": 1, "group": 0, "length": 320}]));
            set(m, "/external_buffer_groups", json!([{"name": "weights.bin"}]))
        },
        r#"external weights are not supported: the data of "functional_1_1/digits_1/probabilities_1/MatMul" and of 1 more tensor is not in this file, but in external buffers: group "weights.bin"
help: export the model again with its weights inside the .tflite file"#,
    ),
];

/// The messages are listed without `invalid model: `, with which each begins.
const INVALID: &[Case] = &[
    (
        "version 0",
        |m| set(m, "/operator_codes/5/version", 0),
        "node 8: operator code 5 (SOFTMAX) has version 0; versions start at 1",
    ),
    (
        "a negative version of a composite",
        |m| {
            softmax_to(m, BuiltinOp::STABLEHLO_COMPOSITE.0);
            remove(m, "/subgraphs/0/operators/8/builtin_options_type");
            remove(m, "/subgraphs/0/operators/8/builtin_options");
            set(m, "/subgraphs/0/operators/8/builtin_options_2_type", 21);
            let options = json!({"name": "acme.f", "decomposition_subgraph_index": 0, "version": -5});
            set(m, "/subgraphs/0/operators/8/builtin_options_2", options)
        },
        r#"node 8 (STABLEHLO_COMPOSITE, writes "StatefulPartitionedCall_1:0"): composite "acme.f" has version -5; versions start at 1"#,
    ),
    ("a negative operator", |m| softmax_to(m, -3), "node 8: operator code 5 is the negative number -3"),
    (
        "a custom op without a name",
        |m| softmax_to(m, 32),
        "node 8: operator code 5 is a custom op without a name",
    ),
    (
        "an old schema",
        |m| set(m, "/version", 2),
        "its schema version is 2; every TFLite runtime reads version 3 only",
    ),
    ("no subgraphs", |m| set(m, "/subgraphs", json!([])), "the file has no subgraphs"),
    (
        "an operator code that is not there",
        |m| set(m, "/subgraphs/0/operators/8/opcode_index", 77),
        "node 8: operator code 77 does not exist; the file has 6 operator codes",
    ),
    (
        "an operator code beyond the only one",
        |m| {
            let first = m["operator_codes"][0].clone();
            set(m, "/operator_codes", json!([first]));
        },
        "node 1: operator code 1 does not exist; the file has 1 operator code",
    ),
    (
        "an input that is not there",
        |m| set(m, "/subgraphs/0/operators/8/inputs/0", 77),
        r#"node 8 (SOFTMAX, writes "StatefulPartitionedCall_1:0"): input tensor 77 is out of range for 23 tensors"#,
    ),
    (
        "a negative input",
        |m| set(m, "/subgraphs/0/operators/8/inputs/0", -2),
        r#"node 8 (SOFTMAX, writes "StatefulPartitionedCall_1:0"): input tensor -2 is out of range for 23 tensors"#,
    ),
    (
        "an output that is not there",
        |m| set(m, "/subgraphs/0/operators/8/outputs/0", 77),
        "node 8 (SOFTMAX): output tensor 77 is out of range for 23 tensors",
    ),
    (
        "an output left out",
        |m| set(m, "/subgraphs/0/operators/8/outputs/0", -1),
        "node 8 (SOFTMAX): output tensor -1 is out of range for 23 tensors",
    ),
    (
        "nodes out of order",
        |m| set(m, "/subgraphs/0/operators/5/inputs/0", 20),
        r#"node 5 (RESHAPE, writes "functional_1_1/digits_1/lambda_1/Reshape"): it reads tensor 20 ("functional_1_1/digits_1/dense_1/MatMul;functional_1_1/digits_1/dense_1/Relu;func…"), which is not an input, constant or variable and which no earlier node writes"#,
    ),
    (
        "a tensor that is written twice",
        |m| set(m, "/subgraphs/0/operators/8/outputs/0", 20),
        r#"node 8 (SOFTMAX, writes "functional_1_1/digits_1/dense_1/MatMul;functional_1_1/digits_1/dense_1/Relu;func…"): it writes tensor 20, which is an input, a variable, a constant or written by an earlier node"#,
    ),
    (
        "a graph's output that is not there",
        |m| set(m, "/subgraphs/0/outputs/0", 77),
        "the graph's output tensor 77 is out of range for 23 tensors",
    ),
    (
        "a graph's input left out",
        |m| set(m, "/subgraphs/0/inputs/0", -1),
        "the graph's input tensor -1 is out of range for 23 tensors",
    ),
    (
        "another op's options",
        |m| {
            set(m, "/subgraphs/0/operators/8/builtin_options_type", 11);
            set(m, "/subgraphs/0/operators/8/builtin_options", json!({}))
        },
        r#"node 8 (SOFTMAX, writes "StatefulPartitionedCall_1:0"): it has AddOptions, but its op needs SoftmaxOptions"#,
    ),
    (
        "options from the future",
        |m| {
            set(m, "/subgraphs/0/operators/8/builtin_options_type", 250);
            set(m, "/subgraphs/0/operators/8/builtin_options", json!({}))
        },
        r#"node 8 (SOFTMAX, writes "StatefulPartitionedCall_1:0"): it has the unknown options type 250, but its op needs SoftmaxOptions"#,
    ),
    (
        "two kinds of options",
        |m| {
            set(m, "/subgraphs/0/operators/8/builtin_options_2_type", 1);
            set(m, "/subgraphs/0/operators/8/builtin_options_2", json!({}))
        },
        r#"node 8 (SOFTMAX, writes "StatefulPartitionedCall_1:0"): it has SoftmaxOptions and StablehloConcatenateOptions, but its op needs SoftmaxOptions"#,
    ),
    (
        "an unknown padding",
        |m| set(m, "/subgraphs/0/operators/3/builtin_options/padding", 9),
        r#"node 3 (MAX_POOL_2D, writes "functional_1_1/digits_1/max_pooling2d_1/MaxPool2d"): its Pool2DOptions.padding has the unknown value 9"#,
    ),
    (
        "an unknown activation",
        |m| set(m, "/subgraphs/0/operators/6/builtin_options/fused_activation_function", 77),
        r#"node 6 (FULLY_CONNECTED, writes "functional_1_1/digits_1/dense_1/MatMul;functional_1_1/digits_1/dense_1/Relu;func…"): its FullyConnectedOptions.fused_activation_function has the unknown value 77"#,
    ),
    (
        "an unknown element type",
        |m| set(m, "/subgraphs/0/tensors/17/type", 99),
        r#"tensor 17 ("functional_1_1/digits_1/max_pooling2d_1/MaxPool2d"): unknown element type 99; this build knows 0 to 22"#,
    ),
    (
        "a negative dimension",
        |m| set(m, "/subgraphs/0/tensors/17/shape/1", -4),
        r#"tensor 17 ("functional_1_1/digits_1/max_pooling2d_1/MaxPool2d"): dimension -4 is negative"#,
    ),
    (
        "a shape without bounds",
        |m| set(m, "/subgraphs/0/tensors/17/shape", json!([2147483647, 2147483647, 2147483647, 2147483647])),
        r#"tensor 17 ("functional_1_1/digits_1/max_pooling2d_1/MaxPool2d"): the number of elements of [2147483647, 2147483647, 2147483647, 2147483647] overflows"#,
    ),
    (
        "a buffer that is not there",
        |m| set(m, "/subgraphs/0/tensors/3/buffer", 999),
        r#"tensor 3 ("functional_1_1/digits_1/probabilities_1/MatMul"): buffer 999 does not exist; the file has 26 buffers"#,
    ),
    (
        "too little data",
        |m| set(m, "/buffers/4/data", json!([1, 2, 3])),
        r#"tensor 3 ("functional_1_1/digits_1/probabilities_1/MatMul"): its data has 3 bytes, its type and shape need 320"#,
    ),
    (
        "data behind the end of the file",
        |m| set(m, "/buffers/4", json!({"offset": 1000000, "size": 320})),
        r#"tensor 3 ("functional_1_1/digits_1/probabilities_1/MatMul"): buffer 4: 320 bytes at offset 1000000 are outside the file of 24016 bytes"#,
    ),
    (
        "an offset that overflows",
        |m| set(m, "/buffers/4", json!({"offset": u64::MAX, "size": u64::MAX})),
        r#"tensor 3 ("functional_1_1/digits_1/probabilities_1/MatMul"): buffer 4: 18446744073709551615 bytes at offset 18446744073709551615 are outside the file of 24016 bytes"#,
    ),
    (
        "data in the header",
        |m| set(m, "/buffers/4", json!({"offset": 4, "size": 320})),
        r#"tensor 3 ("functional_1_1/digits_1/probabilities_1/MatMul"): buffer 4: 320 bytes at offset 4 overlap the file's header"#,
    ),
    (
        "a variable with data",
        |m| set(m, "/subgraphs/0/tensors/3/is_variable", true),
        r#"tensor 3 ("functional_1_1/digits_1/probabilities_1/MatMul"): a variable cannot have constant data"#,
    ),
    (
        "a shape signature of another rank",
        |m| set(m, "/subgraphs/0/tensors/0/shape_signature", json!([-1, 8, 8])),
        r#"tensor 0 ("serving_default_image:0"): its shape signature has 3 dimensions, its shape [1, 8, 8, 1] has 4"#,
    ),
    (
        "a shape signature with a strange dimension",
        |m| set(m, "/subgraphs/0/tensors/0/shape_signature", json!([-2, 8, 8, 1])),
        r#"tensor 0 ("serving_default_image:0"): its shape signature has the dimension -2; only -1 stands for an unknown one"#,
    ),
    (
        "an external buffer that is not there",
        |m| set(m, "/subgraphs/0/tensors/3/external_buffer", 7),
        r#"tensor 3 ("functional_1_1/digits_1/probabilities_1/MatMul"): external buffer 7 does not exist; the file has 0"#,
    ),
    (
        "scales without zero points",
        |m| remove(m, "/subgraphs/0/tensors/3/quantization/zero_point"),
        r#"tensor 3 ("functional_1_1/digits_1/probabilities_1/MatMul"): its quantization has 10 scales, but 0 zero points"#,
    ),
    (
        "too few scales",
        |m| {
            set(m, "/subgraphs/0/tensors/3/quantization/scale", json!([1, 1, 1]));
            set(m, "/subgraphs/0/tensors/3/quantization/zero_point", json!([0, 0, 0]))
        },
        r#"tensor 3 ("functional_1_1/digits_1/probabilities_1/MatMul"): its quantization has 3 scales, expected 1 or 10 (dimension 0 of its shape [10, 32])"#,
    ),
    (
        "a scale that is not a number",
        |m| set(m, "/subgraphs/0/tensors/3/quantization/scale/2", "NaN"),
        r#"tensor 3 ("functional_1_1/digits_1/probabilities_1/MatMul"): its scale of channel 2 is NaN; scales are finite and not negative"#,
    ),
    (
        "a negative scale",
        |m| set(m, "/subgraphs/0/tensors/17/quantization/scale/0", -1.5),
        r#"tensor 17 ("functional_1_1/digits_1/max_pooling2d_1/MaxPool2d"): its scale is -1.5; scales are finite and not negative"#,
    ),
    (
        "a zero point outside the type",
        |m| set(m, "/subgraphs/0/tensors/17/quantization/zero_point/0", 300),
        r#"tensor 17 ("functional_1_1/digits_1/max_pooling2d_1/MaxPool2d"): its zero point is 300, outside -128 to 127, the range of INT8"#,
    ),
    (
        "a quantized dimension that is not there",
        |m| set(m, "/subgraphs/0/tensors/3/quantization/quantized_dimension", 2),
        r#"tensor 3 ("functional_1_1/digits_1/probabilities_1/MatMul"): its quantized dimension 2 is out of range for 2 dimensions"#,
    ),
    (
        "an unknown kind of quantization",
        |m| quantize(m, 9, json!({})),
        r#"tensor 3 ("functional_1_1/digits_1/probabilities_1/MatMul"): unknown kind 9 of quantization details"#,
    ),
    (
        "blocks without a size",
        |m| quantize(m, 2, json!({"scales": 2, "zero_points": -1})),
        r#"tensor 3 ("functional_1_1/digits_1/probabilities_1/MatMul"): blockwise quantization names tensor 2 as its scales and 0 as its block size"#,
    ),
    (
        "scales in a tensor that is not there",
        |m| quantize(m, 2, json!({"scales": 99, "zero_points": -1, "block_size": 32})),
        r#"tensor 3 ("functional_1_1/digits_1/probabilities_1/MatMul"): its scales are tensor 99, which is out of range for 23 tensors"#,
    ),
    (
        "scales of the wrong type",
        |m| quantize(m, 2, json!({"scales": 2, "zero_points": -1, "block_size": 32})),
        r#"tensor 3 ("functional_1_1/digits_1/probabilities_1/MatMul"): its scales are tensor 2 of type INT32, expected FLOAT16, BFLOAT16 or FLOAT32"#,
    ),
    (
        "blocks that do not divide",
        |m| {
            quantize(m, 2, json!({"scales": 23, "zero_points": -1, "block_size": 5}));
            set(m, "/subgraphs/0/tensors/-", json!({"shape": [10]}))
        },
        r#"tensor 3 ("functional_1_1/digits_1/probabilities_1/MatMul"): blocks of 5 elements do not divide the last dimension of its shape [10, 32]"#,
    ),
    (
        "too few scales of blocks",
        |m| {
            quantize(m, 2, json!({"scales": 23, "zero_points": -1, "block_size": 16}));
            set(m, "/subgraphs/0/tensors/-", json!({"shape": [10]}))
        },
        r#"tensor 3 ("functional_1_1/digits_1/probabilities_1/MatMul"): its scales are tensor 23 of shape [10], but shape [10, 32] in blocks of 16 needs 20 of them"#,
    ),
    (
        "scales along a dimension that is not there",
        |m| {
            quantize(m, 3, json!({"scales": 23, "zero_points": -1, "quantized_dimensions": [0, 2]}));
            set(m, "/subgraphs/0/tensors/-", json!({"shape": [10]}))
        },
        r#"tensor 3 ("functional_1_1/digits_1/probabilities_1/MatMul"): its quantized dimension 2 is out of range for 2 dimensions"#,
    ),
    (
        "sparse storage of another size",
        |m| {
            set(
                m,
                "/subgraphs/0/tensors/3/sparsity",
                json!({"traversal_order": [0, 1], "dim_metadata": [{"dense_size": 11}, {"dense_size": 32}]}),
            )
        },
        r#"tensor 3 ("functional_1_1/digits_1/probabilities_1/MatMul"): invalid sparsity: dimension 0 is 10 long, but 11 in its metadata"#,
    ),
    (
        "an unknown sparse storage",
        |m| {
            set(
                m,
                "/subgraphs/0/tensors/3/sparsity",
                json!({"traversal_order": [0, 1], "dim_metadata": [{"format": 5}, {"dense_size": 32}]}),
            )
        },
        r#"tensor 3 ("functional_1_1/digits_1/probabilities_1/MatMul"): unknown storage format 5 of a sparse dimension"#,
    ),
    (
        "too few sparse segments",
        |m| {
            set(
                m,
                "/subgraphs/0/tensors/3/sparsity",
                json!({"traversal_order": [0, 1], "dim_metadata": [{"dense_size": 10}, {"format": 1, "array_segments_type": 1, "array_segments": {"values": [0, 5]}, "array_indices_type": 1, "array_indices": {"values": [0,1]}}]}),
            )
        },
        r#"tensor 3 ("functional_1_1/digits_1/probabilities_1/MatMul"): invalid sparsity: dimension 1 has 2 segments for 10 rows"#,
    ),
    (
        "a signature of a subgraph that is not there",
        |m| set(m, "/signature_defs/0/subgraph_index", 9),
        r#"signature "serving_default" runs subgraph 9, which does not exist; the file has 1"#,
    ),
    (
        "a signature of a tensor that is not an input",
        |m| set(m, "/signature_defs/0/inputs/0/tensor_index", 9),
        r#"signature "serving_default": input "image" is tensor 9, which is not an input of subgraph 0"#,
    ),
    (
        "two signatures with one key",
        |m| {
            let s = m["signature_defs"][0].clone();
            set(m, "/signature_defs/-", s)
        },
        r#"there are two signatures "serving_default""#,
    ),
    (
        "an input that is named twice",
        |m| {
            let s = m["signature_defs"][0]["inputs"][0].clone();
            set(m, "/signature_defs/0/inputs/-", s)
        },
        r#"signature "serving_default" names the input "image" twice"#,
    ),
    (
        "metadata that is not there",
        |m| set(m, "/metadata/0/buffer", 999),
        r#"metadata "min_runtime_version": buffer 999 does not exist; the file has 26 buffers"#,
    ),
    (
        "a call of a subgraph that is not there",
        |m| {
            set(m, "/operator_codes/3/builtin_code", 118);
            set(m, "/operator_codes/3/deprecated_builtin_code", 118);
            set(m, "/subgraphs/0/operators/5/builtin_options_type", 92);
            set(m, "/subgraphs/0/operators/5/builtin_options", json!({"then_subgraph_index": 3}))
        },
        r#"node 5 (IF, writes "functional_1_1/digits_1/lambda_1/Reshape"): it calls subgraph 3, which does not exist; the file has 1"#,
    ),
    (
        "a subgraph that calls itself",
        |m| {
            set(m, "/operator_codes/3/builtin_code", 118);
            set(m, "/operator_codes/3/deprecated_builtin_code", 118);
            set(m, "/subgraphs/0/operators/5/builtin_options_type", 92);
            set(m, "/subgraphs/0/operators/5/builtin_options", json!({"then_subgraph_index": 0}))
        },
        "subgraph 0 calls itself, directly or through others",
    ),
    (
        "custom options outside the file",
        |m| {
            softmax_to(m, 32);
            set(m, "/operator_codes/5/custom_code", "Frobnicate");
            set(m, "/subgraphs/0/operators/8/large_custom_options_offset", 1u64 << 40);
            set(m, "/subgraphs/0/operators/8/large_custom_options_size", 9)
        },
        r#"node 8 (custom op "Frobnicate", writes "StatefulPartitionedCall_1:0"): large custom options: 9 bytes at offset 1099511627776 are outside the file of 24400 bytes"#,
    ),
];
