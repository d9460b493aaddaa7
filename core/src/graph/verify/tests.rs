use std::ops::AddAssign;
use std::sync::{Arc, Mutex};

use super::*;
use crate::graph::{Composite, ModelBytes, Node};
use crate::ops::Params;
use crate::ops::binary::AddParams;
use crate::ops::control_flow::{IfParams, StableHloCompositeParams};
use crate::types::Shape;
use crate::types::TensorType;
use crate::types::quantization::{Affine, Quantization};
use crate::types::sparsity::{Level, Sparsity};
use crate::types::{BuiltinOp, Op};

fn id(i: usize) -> TensorId {
    TensorId(i)
}

fn add(a: usize, b: usize, out: usize) -> Node {
    Node::new(BuiltinOp::ADD, 1, AddParams::default(), [Some(id(a)), Some(id(b))], [id(out)])
}

/// `sum = (x + c) + c`, and a custom op, a variable and a signature.
fn draft() -> ModelDraft {
    let float = |name| Tensor::new(name, TensorType::Float32, [2]);
    let constant = Tensor { data: Some(8..16), ..float("c") };
    let state = Tensor { is_variable: true, ..float("state") };
    let custom = Node {
        custom_options: 0..3,
        ..Node::new(Op::custom("Mine"), 1, Params::Custom, [Some(id(3)), None], [id(5)])
    };
    let primary = Subgraph {
        name: "main".into(),
        tensors: vec![float("x"), constant, float("y"), float("sum"), state, float("mine")],
        nodes: vec![add(0, 1, 2), add(2, 1, 3), custom],
        inputs: vec![id(0)],
        outputs: vec![id(3), id(5)],
        ..Default::default()
    };
    let other = Subgraph {
        name: "other".into(),
        tensors: vec![float("x")],
        inputs: vec![id(0)],
        outputs: vec![id(0)],
        ..Default::default()
    };
    let mut draft = ModelDraft::new(ModelBytes::new([0; 32]), vec![primary, other]);
    let names = |name: &str, i| vec![(name.to_owned(), id(i))];
    draft.signatures =
        vec![Signature { key: "serve".into(), subgraph: 0, inputs: names("x", 0), outputs: names("sum", 3) }];
    draft.metadata = vec![("notes".into(), 16..20)];
    draft.unnamed_metadata = vec![20..24];
    draft.archive = Some(24..32);
    draft
}

/// Returns the error of verifying a valid draft after `edit`, without the path in front.
fn refused(edit: impl FnOnce(&mut ModelDraft)) -> String {
    let mut draft = draft().verify().unwrap().into_draft();
    edit(&mut draft);
    draft.path = Some("model.tflite".into());
    let message = draft.verify().unwrap_err().to_string();
    let message = message.strip_prefix("model.tflite: invalid model: ").expect("the path is named");
    message.to_owned()
}

#[test]
fn an_edit_that_is_valid_makes_a_model() {
    let mut draft = draft().verify().unwrap().into_draft();
    draft.subgraphs[0].nodes[1].inputs[1] = Some(id(0));
    draft.description = "edited".into();
    let model = draft.verify().unwrap();
    assert_eq!(model.subgraphs()[0].nodes[1].inputs, [Some(id(2)), Some(id(0))]);
    assert_eq!((model.description(), model.metadata("notes")), ("edited", Some(&[0; 4][..])));
    assert_eq!(model.archive_range(), Some(24..32));
}

#[test]
fn negative_versions_of_composites_are_refused() {
    let composite = |version: i32| {
        move |m: &mut ModelDraft| {
            let params = StableHloCompositeParams::default()
                .name("acme.f".to_owned())
                .decomposition_subgraph_index(1)
                .version(version);
            m.subgraphs[0].nodes[2] =
                Node::new(BuiltinOp::STABLEHLO_COMPOSITE, 1, params, [Some(id(3))], [id(5)]);
        }
    };
    for version in [-1, -5, i32::MIN] {
        let text = format!("composite \"acme.f\" has version {version}; versions start at 1");
        assert!(refused(composite(version)).ends_with(&text));
    }
    for version in [0, 1, 7] {
        let mut draft = draft().verify().unwrap().into_draft();
        composite(version)(&mut draft);
        let model = draft.verify().unwrap();
        let node = &model.subgraphs()[0].nodes[2];
        assert_eq!(Composite::of(&model, node).unwrap().version, version.max(1).cast_unsigned());
    }
}

#[test]
fn an_output_that_is_an_input_is_refused() {
    let message = refused(|m| {
        let node = &mut m.subgraphs[0].nodes[0];
        node.inputs[0] = Some(node.outputs[0]);
    });
    assert_eq!(
        message,
        "node 0 (ADD, writes \"y\"): it reads tensor 2 (\"y\"), which is not an input, constant or variable and which no \
         earlier node writes"
    );
    let message = refused(|m| m.subgraphs[0].nodes[1].outputs[0] = id(2));
    assert!(message.contains("it writes tensor 2, which is an input, a variable, a constant or written"));
    let message = refused(|m| m.subgraphs[0].nodes[1].outputs = vec![id(3), id(3)]);
    assert!(message.contains("it writes tensor 3, which is"), "{message}");
    for source in [0, 1, 4] {
        let message = refused(|m| m.subgraphs[0].nodes[0].outputs[0] = id(source));
        assert!(message.contains(&format!("it writes tensor {source}, which is")), "{message}");
    }
}

#[test]
fn the_order_of_nodes_is_checked() {
    let message = refused(|m| m.subgraphs[0].nodes.swap(0, 1));
    assert!(message.starts_with("node 0 (ADD, writes \"sum\"): it reads tensor 2 (\"y\")"), "{message}");
    let message = refused(|m| m.subgraphs[0].nodes.truncate(1));
    assert_eq!(message, "the graph's output tensor 3 (\"sum\") is never written");
}

#[test]
fn indices_out_of_range_are_refused() {
    let check = |edit: fn(&mut Subgraph), wanted: &str| {
        let message = refused(|m| edit(&mut m.subgraphs[0]));
        assert!(message.contains(wanted), "{message}");
    };
    check(|g| g.inputs[0] = id(6), "the graph's input tensor 6 is out of range for 6 tensors");
    check(|g| g.outputs.push(id(9)), "the graph's output tensor 9 is out of range");
    check(|g| g.nodes[0].inputs[0] = Some(id(usize::MAX)), "node 0 (ADD, writes \"y\"): input tensor");
    check(|g| g.nodes[1].outputs[0] = id(6), "node 1 (ADD): output tensor 6 is out of range");
    check(|g| g.nodes[2].set_intermediates([None, Some(id(7))]), "intermediate tensor 7 is out of range");
    check(
        |g| g.nodes[2].custom_options = 30..33,
        "custom options: bytes 30 to 33 are outside the model's 32",
    );
    check(
        |g| {
            let params = IfParams::default().then_subgraph_index(1).else_subgraph_index(2);
            g.nodes[0].params = params.into();
        },
        "it calls subgraph 2, which does not exist; the file has 2",
    );
    check(
        |g| {
            let params = IfParams::default().then_subgraph_index(0).else_subgraph_index(1);
            g.nodes[0].params = params.into();
        },
        "subgraph 0 calls itself",
    );
    assert_eq!(refused(|m| m.subgraphs.clear()), "there are no subgraphs");
    let message = refused(|m| m.subgraphs[1].outputs.push(id(1)));
    assert!(message.starts_with("subgraph 1 (\"other\"): the graph's output tensor 1"), "{message}");
}

#[test]
fn signatures_metadata_and_archive_are_checked() {
    let check = |edit: fn(&mut ModelDraft), wanted: &str| assert_eq!(refused(edit), wanted);
    check(
        |m| m.signatures[0].subgraph = 2,
        "signature \"serve\" runs subgraph 2, which does not exist; the file has 2",
    );
    check(
        |m| m.signatures[0].inputs[0].1 = id(40),
        "signature \"serve\": input \"x\" is tensor 40, which is not an input of subgraph 0",
    );
    check(
        |m| m.signatures[0].outputs[0].1 = id(2),
        "signature \"serve\": output \"sum\" is tensor 2, which is not an output of subgraph 0",
    );
    check(|m| m.signatures.push(m.signatures[0].clone()), "there are two signatures \"serve\"");
    check(
        |m| m.signatures[0].outputs.push(("sum".into(), id(5))),
        "signature \"serve\" names the output \"sum\" twice",
    );
    let another = |key: &str, subgraph, tensor| {
        Signature::new(key, subgraph, Vec::new(), vec![("sum".to_owned(), id(tensor))])
    };
    let mut several = draft();
    several.signatures.extend([another("same", 0, 5), another("other", 1, 0)]);
    assert!(several.verify().is_ok());
    let text = refused(|m| m.signatures.extend([another("same", 0, 3), another("other", 1, 3)]));
    assert_eq!(text, "signature \"other\": output \"sum\" is tensor 3, which is not an output of subgraph 1");
    check(
        |m| m.metadata[0].1.end = 33,
        "metadata \"notes\": bytes 16 to 33 are outside the model's 32 bytes",
    );
    check(
        |m| m.unnamed_metadata[0].end = 9,
        "unnamed metadata: bytes 20 to 9 are outside the model's 32 bytes",
    );
    check(|m| m.archive = Some(33..33), "the archive: bytes 33 to 33 are outside the model's 32 bytes");
    check(
        |m| m.bytes = ModelBytes::new([0; 12]),
        "tensor 1 (\"c\"): bytes 8 to 16 are outside the model's 12 bytes",
    );
}

#[test]
fn tensors_are_checked() {
    let check = |edit: fn(&mut Tensor), wanted: &str| {
        let message = refused(|m| edit(&mut m.subgraphs[0].tensors[1]));
        assert_eq!(message, format!("tensor 1 (\"c\"): {wanted}"));
    };
    check(|t| t.data = Some(8..15), "its data has 7 bytes, its type and shape need 8");
    check(|t| t.ty = TensorType::Float64, "its data has 8 bytes, its type and shape need 16");
    check(|t| t.shape = [2, 2].into(), "its data has 8 bytes, its type and shape need 16");
    check(
        |t| t.shape = [usize::MAX, 2].into(),
        &format!("the number of elements of [{}, 2] overflows", usize::MAX),
    );
    check(|t| t.shape = Shape::new(&[1; 65]), "rank 65 is above 64");
    check(
        |t| t.set_shape_signature(vec![None, None]),
        "its shape signature has 2 dimensions, its shape [2] has 1",
    );
    check(|t| t.is_variable = true, "a variable cannot have constant data");
    check(|t| t.ty = TensorType::Resource, "a RESOURCE tensor cannot have constant data");
    check(
        |t| t.ty = TensorType::String,
        "offset 0 of its strings is out of order or outside the texts in its buffer of 8 bytes",
    );
    let sparse = |t: &mut Tensor| {
        let levels = vec![Level::csr(&[0, 1], &[1])];
        let sparsity = Sparsity { traversal_order: vec![0], block_map: vec![], levels };
        t.set_sparsity(Some(Arc::new(sparsity)));
    };
    let message = refused(|m| sparse(&mut m.subgraphs[0].tensors[1]));
    assert_eq!(message, "tensor 1 (\"c\"): its data has 8 bytes, its type and shape need 4");
    let message = refused(|m| sparse(&mut m.subgraphs[0].tensors[2]));
    assert_eq!(message, "tensor 2 (\"y\"): it is sparse, but has no data");
}

#[test]
fn quantization_is_checked() {
    let check = |ty: TensorType, quantization: Quantization, wanted: &str| {
        let message = refused(|m| {
            let tensor = &mut m.subgraphs[0].tensors[2];
            (tensor.ty, tensor.quantization) = (ty, Some(Arc::new(quantization)));
        });
        assert_eq!(message, format!("tensor 2 (\"y\"): {wanted}"));
    };
    let affine = |scales: &[f32], zeros: &[i64], dimension| {
        Quantization::Affine(Affine { scales: scales.into(), zero_points: zeros.to_vec().into(), dimension })
    };
    use TensorType::Int8;
    check(Int8, affine(&[1.0; 2], &[0], 0), "its quantization has 2 scales, but 1 zero point");
    check(Int8, affine(&[1.0], &[0], 1), "its quantized dimension 1 is out of range for 1 dimension");
    check(
        Int8,
        affine(&[1.0; 3], &[0; 3], 0),
        "its quantization has 3 scales, expected 1 or 2 (dimension 0 of its shape [2])",
    );
    check(Int8, affine(&[f32::NAN], &[0], 0), "its scale is NaN; scales are finite and not negative");
    check(
        Int8,
        affine(&[1.0; 2], &[0, 128], 0),
        "its zero point of channel 1 is 128, outside -128 to 127, the range of INT8",
    );
    let axes = |scales, dimensions: &[usize]| Quantization::MultiAxis {
        scales: TensorId(scales),
        zero_points: None,
        block_size: 1,
        dimensions: dimensions.into(),
    };
    check(Int8, axes(1, &[0, 0]), "quantized dimension 0 is named twice");
    check(Int8, axes(1, &[3]), "its quantized dimension 3 is out of range for 1 dimension");
    check(Int8, axes(9, &[0]), "its scales are tensor 9, which is out of range for 6 tensors");
    let blocks = |scales, zero_points: Option<usize>, block_size| Quantization::Blockwise {
        scales: TensorId(scales),
        zero_points: zero_points.map(TensorId),
        block_size,
    };
    check(Int8, blocks(1, None, 0), "blocks of 0 elements do not divide the last dimension of its shape [2]");
    check(
        Int8,
        blocks(1, None, 2),
        "its scales are tensor 1 of shape [2], but shape [2] in blocks of 2 needs 1 of them",
    );
    check(
        Int8,
        blocks(2, None, 1),
        "its scales are tensor 2 of type INT8, expected FLOAT16, BFLOAT16 or FLOAT32",
    );
    check(Int8, blocks(1, Some(9), 1), "its zero points are tensor 9, which is out of range for 6 tensors");
}

#[test]
fn extensions_stay_with_the_model_that_they_were_made_for() {
    let model = draft().verify().unwrap();
    model.extension::<Mutex<u32>>().lock().unwrap().add_assign(7);
    assert_eq!(*model.extension::<Mutex<u32>>().lock().unwrap(), 7);
    assert_eq!(*model.clone().extension::<Mutex<u32>>().lock().unwrap(), 0);
    let edited = model.into_draft().verify().unwrap();
    assert_eq!(*edited.extension::<Mutex<u32>>().lock().unwrap(), 0);
}

#[test]
fn data_outside_of_the_model_is_a_constant() {
    let mut external = draft();
    external.subgraphs[0].tensors[1].data = None;
    external.subgraphs[0].tensors[1].external_data = true;
    let model = external.verify().unwrap();
    assert!(model.to_bytes().unwrap_err().to_string().contains("outside of the model's bytes"));
    let message = refused(|m| m.subgraphs[0].tensors[1].external_data = true);
    assert_eq!(message, "tensor 1 (\"c\"): its data is both in the model and outside of it");
    let message = refused(|m| m.subgraphs[0].tensors[4].external_data = true);
    assert_eq!(message, "tensor 4 (\"state\"): a variable cannot have constant data");
    let message = refused(|m| m.subgraphs[0].tensors[3].external_data = true);
    assert!(message.contains("it writes tensor 3, which is an input, a variable, a constant"), "{message}");
}
