use super::*;
use crate::graph::archive::tests::archive;
use crate::graph::{ModelBytes, ModelDraft, Tensor, VariantType};
use crate::ops::binary::AddParams;
use crate::ops::control_flow::IfParams;
use crate::ops::{Activation, Params};
use crate::types::TensorType;
use crate::types::quantization::{Affine, MinMax, Quantization};
use crate::types::sparsity::{Indices, Level, Sparsity};

fn read(bytes: Vec<u8>) -> Model {
    Model::from_bytes(ModelBytes::new(bytes)).unwrap()
}

fn ids(ids: &[usize]) -> Vec<TensorId> {
    ids.iter().map(|&i| TensorId(i)).collect()
}

/// A model with some of everything. Each of the 64 bytes of its data is equal to its position.
fn model() -> Model {
    use TensorType::{Float32, Int4, Int8, Variant};
    let constant = |name, ty, shape: &[usize], data| Tensor::new(name, ty, shape).with_data(data);
    let quantized = |quantization: Quantization, tensor: Tensor| tensor.with_quantization(quantization);
    let per_channel = Affine { scales: vec![0.5, 0.25], zero_points: vec![0, 0].into(), dimension: 1 };
    let level = |segments| Level::Csr { segments, indices: Indices::from(vec![2u16, 0, 1]) };
    let sparse = |name, segments| {
        let levels = vec![Level::Dense { size: 2 }, level(segments)];
        let sparsity = Sparsity { traversal_order: vec![0, 1], block_map: vec![], levels };
        constant(name, Int8, &[2, 3], 48..51).with_sparsity(sparsity)
    };
    let mut input = Tensor::new("in", Float32, [1, 2])
        .with_shape_signature(vec![None, Some(2)])
        .with_min_max(Some(MinMax::new(vec![f32::NAN], vec![1.0])));
    input.set_has_rank(true);
    let mut list = Tensor::new("list", Variant, []);
    list.set_variants(vec![VariantType { ty: Float32, shape: vec![None, Some(3)], has_rank: true }]);
    let blocks = |zero_points| Quantization::Blockwise { scales: TensorId(4), zero_points, block_size: 2 };
    let tensors = vec![
        input,
        Tensor::new("state", Float32, [1, 2]).into_variable(),
        quantized(Quantization::Affine(per_channel), constant("channels", Int8, &[2, 2], 4..8)),
        quantized(Quantization::Custom(vec![1, 2, 3]), constant("shorter", Int8, &[2], 4..6)),
        constant("scales", Float32, &[2, 1], 16..24),
        quantized(blocks(None), constant("blocks", Int4, &[2, 2], 24..26)),
        quantized(blocks(Some(TensorId(4))), constant("blocks with zero points", Int4, &[2, 2], 32..34)),
        sparse("narrow", Indices::from(vec![0u8, 1, 3])),
        sparse("wide", Indices::from(vec![0u32, 1, 3])),
        list,
        Tensor::new("sum", Float32, [1, 2]),
        Tensor::new("custom", Float32, [1, 2]),
        Tensor::new("later", Float32, [1, 2]),
        Tensor::new("", Float32, [0, 2]),
    ];
    let add = |version, activation, out| {
        let params = AddParams::default().fused_activation_function(activation);
        Node::new(BuiltinOp::ADD, version, params, [Some(TensorId(0)), Some(TensorId(1))], [TensorId(out)])
    };
    let mut custom =
        Node::new(Op::custom("Mine"), 7, Params::Custom, [Some(TensorId(10)), None], [TensorId(11)])
            .with_intermediates([None, Some(TensorId(2)), None])
            .with_custom_options(51..58);
    custom.set_mutating_variable_inputs([false, true]);
    custom.set_debug_metadata(Some(3));
    let nodes = vec![add(1, Activation::None, 10), custom, add(3, Activation::Relu, 12)];
    let mut primary = Subgraph::new("main", tensors, nodes, ids(&[0]), ids(&[12, 11, 13]));
    primary.set_debug_metadata(Some(0));
    let shared = constant("shared with main", Float32, &[2, 1], 16..24);
    let other = Subgraph::new("", vec![shared], vec![], [], ids(&[0]));
    let bytes: Vec<u8> = (0..64).chain(archive(64)).collect();
    let archive = 64..bytes.len();
    let mut draft = ModelDraft::new(ModelBytes::new(bytes), vec![primary, other]);
    draft.description = "some of everything".into();
    draft.metadata = vec![("bytes".into(), 3..17), ("nothing".into(), 0..0)];
    draft.unnamed_metadata = vec![40..47, 0..0, 3..17];
    draft.archive = Some(archive);
    let names = |name: &str, id| vec![(name.to_owned(), TensorId(id))];
    draft.signatures = vec![Signature::new("serve", 0, names("x", 0), names("y", 12))];
    draft.verify().unwrap()
}

/// The model with a change.
fn changed(change: impl FnOnce(&mut ModelDraft)) -> Model {
    let mut draft = model().into_draft();
    change(&mut draft);
    draft.verify().unwrap()
}

#[test]
fn all_that_is_read_is_written() {
    let model = model();
    let file = model.to_bytes().unwrap();
    let again = read(file.clone());
    assert_eq!(model.difference(&again), None);
    assert_eq!(again.to_bytes().unwrap(), file, "writing is stable");
    let zip = again.archive_range().unwrap();
    assert_eq!(again.archive().unwrap(), archive(zip.start as u32));
}

#[test]
fn every_difference_is_found() {
    let model = model();
    let changes: [fn(&mut ModelDraft); 11] = [
        |m| m.unnamed_metadata[0].end = 46,
        |m| m.archive = None,
        |m| m.description.clear(),
        |m| m.metadata[0].1.start = 4,
        |m| m.signatures[0].set_key(""),
        |m| m.subgraphs[1].set_name("other"),
        |m| m.subgraphs[0].nodes_mut()[0].set_version(2),
        |m| m.subgraphs[0].nodes_mut()[1].set_custom_options(51..57),
        |m| m.subgraphs[0].nodes_mut()[1].set_intermediates([Some(TensorId(0)), Some(TensorId(2)), None]),
        |m| m.subgraphs[0].tensors_mut()[2].set_data(5..9),
        |m| m.subgraphs[0].tensors_mut()[9].set_variants(vec![]),
    ];
    for (i, change) in changes.into_iter().enumerate() {
        let changed = changed(change);
        assert!(model.difference(&changed).is_some(), "change {i}");
        let written = read(changed.to_bytes().unwrap());
        assert_eq!(changed.difference(&written), None, "change {i}");
    }
}

#[test]
fn committed_models_come_back_the_same() {
    let models: [&[u8]; 4] = [
        include_bytes!("../../../assets/digits/digits_float32.tflite"),
        include_bytes!("../../../assets/digits/digits_float16.tflite"),
        include_bytes!("../../../assets/digits/digits_dynamic_range.tflite"),
        include_bytes!("../../../assets/digits/digits_int8.tflite"),
    ];
    for model in models.map(|bytes| read(bytes.to_vec())) {
        let again = read(model.to_bytes().unwrap());
        assert_eq!(model.difference(&again), None);
        assert_eq!(model.min_runtime_version(), again.min_runtime_version());
    }
}

#[test]
fn data_beyond_a_flatbuffer_goes_behind_it() {
    let model = model();
    let inline = model.to_bytes().unwrap();
    let file = write(&model, inline.len() / 2).unwrap();
    assert_eq!(model.difference(&read(file.clone())), None);
    let table = schema::root_as_model(&file).unwrap();
    let buffers = table.buffers().unwrap();
    for buffer in buffers.iter().skip(1).filter(|b| b.data().is_none_or(|d| !d.is_empty())) {
        assert!(buffer.data().is_none());
        assert!(buffer.size() > 0 && buffer.offset() % 16 == 0);
    }
    let custom = table.subgraphs().unwrap().get(0).operators().unwrap().get(1);
    assert!(custom.custom_options().is_none());
    assert_eq!(custom.large_custom_options_size(), 7);
}

#[test]
fn data_is_shared_and_aligned() {
    let file = model().to_bytes().unwrap();
    let table = schema::root_as_model(&file).unwrap();
    let buffers = table.buffers().unwrap();
    assert!(buffers.get(0).data().is_none(), "buffer 0 is empty");
    for buffer in buffers.iter().skip(1) {
        let start = buffer.data().unwrap().bytes().as_ptr().addr() - file.as_ptr().addr();
        assert_eq!(start % 16, 0);
    }
    let buffer =
        |subgraph, tensor| table.subgraphs().unwrap().get(subgraph).tensors().unwrap().get(tensor).buffer();
    assert_eq!(buffer(0, 4), buffer(1, 0), "across subgraphs");
    assert_eq!(buffer(0, 2), buffer(0, 3), "one needs less than the other");
    assert_eq!(buffer(0, 7), buffer(0, 8));
    assert_ne!(buffer(0, 4), buffer(0, 5));
    // channels, scales, twice blocks, sparse, no elements, twice metadata; and none for what has no data.
    assert_eq!(buffers.len(), 1 + 8);
    assert!(buffers.get(buffer(0, 13) as usize).data().is_some_and(|data| data.is_empty()));
    assert_eq!(buffer(0, 12), 0);
}

#[test]
fn one_operator_code_per_op_and_version() {
    let file = model().to_bytes().unwrap();
    let table = schema::root_as_model(&file).unwrap();
    let codes: Vec<_> = table
        .operator_codes()
        .unwrap()
        .iter()
        .map(|c| (c.deprecated_builtin_code(), c.builtin_code().0, c.custom_code(), c.version()))
        .collect();
    let (add, custom) = (BuiltinOp::ADD.0, BuiltinOp::CUSTOM.0);
    assert_eq!(codes, [(0, add, None, 1), (32, custom, Some("Mine"), 7), (0, add, None, 3)]);
}

#[test]
fn codes_that_old_readers_do_not_know_are_placeholders() {
    let node = Node::new(
        BuiltinOp::CUMSUM,
        1,
        ops::cumsum::CumsumParams::default(),
        [Some(TensorId(0)), Some(TensorId(1))],
        [TensorId(2)],
    );
    let float = |name| Tensor::new(name, TensorType::Float32, [2]);
    let tensors = vec![float("x"), Tensor::new("axis", TensorType::Int32, []), float("y")];
    let subgraph = Subgraph::new("", tensors, vec![node], ids(&[0, 1]), ids(&[2]));
    let file = Model::from_subgraphs(vec![], vec![subgraph]).unwrap().to_bytes().unwrap();
    let code = schema::root_as_model(&file).unwrap().operator_codes().unwrap().get(0);
    assert_eq!((code.deprecated_builtin_code(), code.builtin_code().0), (127, BuiltinOp::CUMSUM.0));
}

#[test]
fn calls_stay_calls() {
    let scalar = |name, ty| Tensor::new(name, ty, [1]);
    let branch =
        |name: &str| Subgraph::new(name, vec![scalar("x", TensorType::Int32)], vec![], ids(&[0]), ids(&[0]));
    let params = IfParams::default().then_subgraph_index(2).else_subgraph_index(1);
    let tensors = vec![
        scalar("condition", TensorType::Bool),
        scalar("x", TensorType::Int32),
        scalar("y", TensorType::Int32),
    ];
    let node = Node::new(BuiltinOp::IF, 1, params.clone(), [0, 1].map(|i| Some(TensorId(i))), ids(&[2]));
    let primary = Subgraph::new("", tensors, vec![node], ids(&[0, 1]), ids(&[2]));
    let graphs = vec![primary, branch("else"), branch("then")];
    let model = read(Model::from_subgraphs(vec![], graphs).unwrap().to_bytes().unwrap());
    assert_eq!(*model.subgraphs()[0].nodes()[0].params(), params.into());
    assert_eq!(model.subgraphs()[2].name(), "then");
}

#[test]
fn options_that_a_file_leaves_out_stay_out() {
    let model = changed(|draft| {
        draft.subgraphs[0].nodes_mut()[0].set_options_left_out(true);
        draft.subgraphs[0].nodes_mut()[2].set_options_left_out(true);
    });
    let file = model.to_bytes().unwrap();
    let operators = schema::root_as_model(&file).unwrap().subgraphs().unwrap().get(0).operators().unwrap();
    assert_eq!(operators.get(0).builtin_options_type(), schema::BuiltinOptions::NONE);
    // An edit changed the params, which are not the defaults.
    assert_eq!(operators.get(2).builtin_options_type(), schema::BuiltinOptions::AddOptions);
}

#[test]
fn what_the_format_cannot_hold_is_an_error() {
    let fail = |change: fn(&mut Subgraph)| {
        changed(|draft| change(&mut draft.subgraphs[0])).to_bytes().unwrap_err().to_string()
    };
    let message = fail(|g| g.tensors_mut()[0].set_shape([1, 1 << 31]));
    assert!(message.contains("subgraph 0, tensor 0 (\"in\"): 2147483648 does not fit"), "{message}");
    let message = fail(|g| g.nodes_mut()[0].set_version(u32::MAX));
    assert!(message.contains("version 4294967295 of ADD is too high"), "{message}");
    let message = fail(|g| g.nodes_mut()[0].set_params(Params::None));
    assert!(message.contains("node 0 (ADD v1, writes ") && message.contains("no Add params"), "{message}");
    let message = fail(|g| g.nodes_mut()[0].set_op(Op::Builtin(BuiltinOp(250))));
    assert!(message.contains("builtin operator 250") && message.contains("does not know"), "{message}");
}

#[test]
fn a_file_is_replaced_as_a_whole() {
    let folder = std::env::temp_dir().join(format!("delegraph-save-{}", std::process::id()));
    std::fs::create_dir(&folder).unwrap();
    let (file, model) = (folder.join("model.tflite"), model());
    for _ in 0..2 {
        model.save(&file).unwrap();
        assert_eq!(model.difference(&read(std::fs::read(&file).unwrap())), None);
    }
    let broken = changed(|draft| draft.subgraphs[0].nodes_mut()[0].set_params(Params::None));
    assert!(broken.save(&file).is_err());
    assert_eq!(std::fs::read(&file).unwrap(), model.to_bytes().unwrap(), "the old file is still there");
    let error = model.save(&folder).unwrap_err();
    assert!(
        matches!(error, Error::Write { .. }) && error.chain().contains("a directory, not a file"),
        "{error:?}"
    );
    assert!(model.save(folder.join("nowhere").join("model.tflite")).is_err());
    let left: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left, ["model.tflite"]);
    std::fs::remove_dir_all(&folder).unwrap();
}
