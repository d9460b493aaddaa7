//! A case: one use of an op, small enough to be compared completely.

use std::fmt::{self, Write};
use std::sync::Arc;

use delegraph_core::error::counted;
use delegraph_core::kernel::Placement;
use delegraph_core::ops::cast::CastParams;
use delegraph_core::ops::{
    Declared, InferContext, InferTensor, Inferred, InferredShape, ParamValue, definition,
};
use delegraph_core::quantization::Affine;
use delegraph_core::{
    BuiltinOp, Model, ModelBuilder, Node, Op, OpResolver, Params, Quantization, Shape, SubgraphBuilder,
    TensorId, TensorType,
};
use delegraph_delegate_api::{Delegate, NodeReport, Policy, Runner};
use delegraph_interpreter::{Interpreter, ResourceLimits};

use super::operand::{Kind, Operand, growing, outside, quantum};
use crate::Error;

/// Memory limit of an interpreter that runs a case, in bytes: a mutation may request all memory of the machine.
const MAX_MEMORY: usize = 1 << 30;

/// The reference with which a case is compared.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Verdict {
    /// LiteRT's outputs.
    LiteRt,
    /// LiteRT's outputs, quantized ones within one step, and the reason why they are not exact.
    Within1(&'static str),
    /// LiteRT does not run the case, or not in a comparable way, for this reason. The case must not crash here.
    NotCompared(&'static str),
}

/// An output as the model declares it.
#[derive(Debug, Clone, Default)]
pub struct Output {
    pub(super) ty: Option<TensorType>,
    pub(super) shape: Option<Shape>,
    pub(super) quantization: Option<Quantization>,
}

impl Output {
    /// Creates an output of this type and shape, which inference does not determine.
    pub fn new(ty: TensorType, shape: &[usize]) -> Self {
        Output { ty: Some(ty), shape: Some(Shape::new(shape)), quantization: None }
    }

    /// Creates an output of this type.
    pub fn of(ty: TensorType) -> Self {
        Output { ty: Some(ty), ..Default::default() }
    }

    /// Sets one scale and zero point.
    #[must_use]
    pub fn q(self, scale: f32, zero_point: i64) -> Self {
        Output { quantization: Some(Quantization::per_tensor(scale, zero_point)), ..self }
    }

    /// Sets a scale for each of `count` indices of `dimension`, increasing from `scale`.
    #[must_use]
    pub fn channels(self, scale: f32, count: usize, dimension: usize) -> Self {
        let affine = Affine { scales: growing(scale, count), zero_points: vec![0; count].into(), dimension };
        Output { quantization: Some(Quantization::Affine(affine)), ..self }
    }

    /// Sets the scale and zero point that cases use for type `ty`, if the type is quantized.
    #[must_use]
    pub fn auto(self, ty: TensorType) -> Self {
        match quantum(ty) {
            Some((scale, zero_point)) => self.q(scale, zero_point),
            None => self,
        }
    }
}

/// Creates a model when it is needed.
pub(super) type Make = Arc<dyn Fn() -> Result<Model, Error> + Send + Sync>;

#[derive(Clone)]
pub(super) struct Made(Make);

impl fmt::Debug for Made {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a model")
    }
}

/// A use of an op.
#[derive(Debug, Clone)]
pub struct Case {
    /// The op.
    pub op: BuiltinOp,
    /// Unique among all cases: `family/op_type_detail`.
    pub name: String,
    /// The number of invocations on one interpreter, each with other data.
    pub steps: usize,
    /// The reference of the outputs.
    pub verdict: Verdict,
    pub(super) detail: String,
    pub(super) data_type: Option<TensorType>,
    pub(super) version: Option<u32>,
    pub(super) params: Params,
    pub(super) inputs: Vec<Option<Operand>>,
    pub(super) outputs: Vec<Output>,
    intermediates: Vec<Option<Operand>>,
    /// Subgraphs that the op calls.
    pub(super) called: Vec<SubgraphBuilder>,
    /// The outputs' types, instead of those that inference returns.
    forced: Option<Vec<TensorType>>,
    /// A whole model, for ops that cannot be tested as a single node.
    pub(super) model: Option<ModelBuilder>,
    /// As `model`, created when it is needed.
    pub(super) made: Option<Made>,
    /// The first part of the name, if it is not the family of the op.
    family: Option<&'static str>,
    /// The seed of the case's data, unless it is a listed case.
    pub(super) seed: Option<u64>,
}

impl Case {
    /// Creates a node of this op with one output.
    pub fn new(op: BuiltinOp, params: impl Into<Params>, inputs: impl IntoIterator<Item = Operand>) -> Self {
        Self::optional(op, params, inputs.into_iter().map(Some))
    }

    /// Creates a node of this op with one output; some of its inputs are omitted.
    pub fn optional(
        op: BuiltinOp,
        params: impl Into<Params>,
        inputs: impl IntoIterator<Item = Option<Operand>>,
    ) -> Self {
        Case {
            op,
            name: String::new(),
            steps: 1,
            verdict: Verdict::LiteRt,
            detail: String::new(),
            data_type: None,
            version: None,
            params: params.into(),
            inputs: inputs.into_iter().collect(),
            outputs: vec![Output::default()],
            intermediates: Vec::new(),
            called: Vec::new(),
            forced: None,
            model: None,
            made: None,
            family: None,
            seed: None,
        }
    }

    /// Creates a model that tests `op`; its inputs get the data of `inputs`.
    pub fn model(op: BuiltinOp, model: ModelBuilder, inputs: impl IntoIterator<Item = Operand>) -> Self {
        Case { model: Some(model), ..Self::new(op, Params::None, inputs) }
    }

    /// As [`Case::model`], with a model that is created when it is needed.
    pub(super) fn made(op: BuiltinOp, make: Make, inputs: impl IntoIterator<Item = Operand>) -> Self {
        Case { made: Some(Made(make)), seed: Some(0), ..Self::new(op, Params::None, inputs) }
    }

    /// Names the case after another family than that of its op.
    pub(super) fn in_family(self, family: &'static str) -> Self {
        Case { family: Some(family), ..self }
    }

    /// Generates the case's data from another seed than that of the listed cases.
    pub(super) fn seeded(mut self, seed: u64) -> Self {
        self.inputs.iter_mut().flatten().for_each(|o| o.seed = seed);
        Case { seed: Some(seed), ..self }
    }

    /// Sets the part of the name that distinguishes the case from others.
    #[must_use]
    pub fn detail(self, detail: impl Into<String>) -> Self {
        Case { detail: detail.into(), ..self }
    }

    /// Sets the outputs.
    #[must_use]
    pub fn outputs(self, outputs: impl IntoIterator<Item = Output>) -> Self {
        Case { outputs: outputs.into_iter().collect(), ..self }
    }

    /// Sets the scale and zero point of the only output.
    #[must_use]
    pub fn q(self, scale: f32, zero_point: i64) -> Self {
        self.outputs([Output::default().q(scale, zero_point)])
    }

    /// Quantizes all outputs like the cases' data of type `ty`.
    #[must_use]
    pub fn auto(self, ty: TensorType) -> Self {
        let outputs = self.outputs.clone().into_iter().map(|o| o.auto(ty));
        self.outputs(outputs.collect::<Vec<_>>())
    }

    /// Sets the type of all outputs.
    #[must_use]
    pub fn outputs_of(mut self, ty: TensorType) -> Self {
        self.outputs.iter_mut().for_each(|o| o.ty = Some(ty));
        self
    }

    /// Sets the type whose support the case tests, if it is not that of the op's data operand.
    #[must_use]
    pub fn of(self, ty: TensorType) -> Self {
        Case { data_type: Some(ty), ..self }
    }

    /// Sets the op's version in the model. The default is the lowest sufficient version.
    #[must_use]
    pub fn version(self, version: u32) -> Self {
        Case { version: Some(version), ..self }
    }

    /// Sets the number of invocations.
    #[must_use]
    pub fn steps(self, steps: usize) -> Self {
        Case { steps, ..self }
    }

    /// Sets the reference of the outputs.
    #[must_use]
    pub fn verdict(self, verdict: Verdict) -> Self {
        Case { verdict, ..self }
    }

    /// Adds the tensors that carry the quantization of values inside the op.
    #[must_use]
    pub fn intermediates(self, intermediates: impl IntoIterator<Item = Option<Operand>>) -> Self {
        Case { intermediates: intermediates.into_iter().collect(), ..self }
    }

    /// Adds subgraphs 1, 2, … of the model.
    #[must_use]
    pub fn calls(self, called: impl IntoIterator<Item = SubgraphBuilder>) -> Self {
        Case { called: called.into_iter().collect(), ..self }
    }

    /// Returns the type of the op's data operand.
    pub fn data_type(&self) -> Option<TensorType> {
        self.data_type.or_else(|| {
            let operand = self.inputs.get(data_operand(self.op)).or(self.inputs.first())?;
            operand.as_ref().map(|o| o.ty)
        })
    }

    /// Builds the model.
    ///
    /// # Errors
    /// The case is invalid.
    pub fn build(&self) -> Result<Model, Error> {
        if let Some(Made(make)) = &self.made {
            return make();
        }
        let builder = match &self.model {
            Some(model) => model.clone(),
            None => self
                .called
                .iter()
                .cloned()
                .fold(ModelBuilder::new().subgraph(self.graph()?), |m, g| m.subgraph(g)),
        };
        Ok(builder.build()?)
    }

    fn graph(&self) -> Result<SubgraphBuilder, Error> {
        let mut graph = SubgraphBuilder::new("main");
        let mut inputs = Vec::new();
        for (i, operand) in self.inputs.iter().enumerate() {
            inputs.push(operand.as_ref().map(|o| o.add(&mut graph, &format!("input_{i}"), i)));
        }
        for (i, (id, ty, shape)) in self.add_node(&mut graph, inputs, "")?.into_iter().enumerate() {
            let read = match outside(ty) {
                same if same == ty => id,
                wide => {
                    let read = graph.tensor(&format!("read_{i}"), wide, shape);
                    graph
                        .node(BuiltinOp::CAST, CastParams::default().in_data_type(ty).out_data_type(wide))
                        .inputs([id])
                        .writes([read]);
                    read
                }
            };
            graph.outputs([read]);
        }
        Ok(graph)
    }

    /// Adds the case's node, which reads `inputs`, to a graph whose names begin with `prefix`, and returns its outputs.
    pub(super) fn add_node(
        &self,
        graph: &mut SubgraphBuilder,
        inputs: Vec<Option<TensorId>>,
        prefix: &str,
    ) -> Result<Vec<(TensorId, TensorType, Shape)>, Error> {
        let mut intermediates = Vec::new();
        for (i, operand) in self.intermediates.iter().enumerate() {
            let tensor = |o: &Operand, graph: &mut SubgraphBuilder| {
                let id = graph.tensor(&format!("{prefix}intermediate_{i}"), o.ty, o.shape.clone());
                o.quantization.iter().for_each(|q| graph.quantize(id, q.clone()));
                id
            };
            intermediates.push(operand.as_ref().map(|o| tensor(o, graph)));
        }
        let mut outputs = Vec::new();
        for (i, (inferred, output)) in self.infer()?.into_iter().zip(&self.outputs).enumerate() {
            let shape = match (inferred.shape, &output.shape) {
                (InferredShape::Known(shape), _) => shape,
                (_, Some(shape)) => shape.clone(),
                _ => return Err(Error::invalid(format_args!("the shape of output {i} must be given"))),
            };
            let id = graph.tensor(&format!("{prefix}output_{i}"), inferred.ty, shape.clone());
            output.quantization.iter().for_each(|q| graph.quantize(id, q.clone()));
            outputs.push((id, inferred.ty, shape));
        }
        let mut node = graph.node(self.op, self.params.clone());
        if let Some(version) = self.version {
            node = node.version(version);
        }
        node.optional_inputs(inputs).intermediates(intermediates).writes(outputs.iter().map(|(id, ..)| *id));
        Ok(outputs)
    }

    fn infer(&self) -> Result<Vec<Inferred>, Error> {
        if let Some(types) = &self.forced {
            let output = |(&ty, output): (&TensorType, &Output)| match &output.shape {
                Some(shape) => Inferred::known(ty, shape.clone()),
                None => Inferred::data_dependent(ty),
            };
            return Ok(types.iter().zip(&self.outputs).map(output).collect());
        }
        let definition = definition(self.op).ok_or_else(|| Error::invalid("the op has no definition"))?;
        let constants: Vec<Option<Vec<u8>>> = (self.inputs.iter().enumerate())
            .map(|(i, o)| o.as_ref().filter(|o| o.kind == Kind::Constant).map(|o| o.data(i, 0)))
            .collect();
        let scalar = Shape::default();
        let first = self.inputs.iter().flatten().next().map_or(TensorType::Float32, |o| o.ty);
        let newest = definition.history.last().map_or(1, |(version, _)| *version);
        let operand = |(o, constant)| -> Option<InferTensor<'_>> {
            let (o, constant): (&Option<Operand>, &Option<Vec<u8>>) = (o, constant);
            o.as_ref().map(|o| {
                InferTensor::new(o.ty, &o.shape)
                    .with_quantization(o.quantization.as_ref())
                    .with_constant(constant.as_deref())
            })
        };
        let declared = |o| -> Declared<'_> {
            let o: &Output = o;
            Declared::new(o.ty.unwrap_or(first), o.shape.as_ref().unwrap_or(&scalar))
                .with_quantization(o.quantization.as_ref())
        };
        let cx = InferContext::new(&self.params, self.version.unwrap_or(newest))
            .with_inputs(self.inputs.iter().zip(&constants).map(operand))
            .with_outputs(self.outputs.iter().map(declared));
        let inferred = (definition.infer)(&cx).map_err(Error::invalid_caused_by)?;
        match inferred.len() == self.outputs.len() {
            true => Ok(inferred.into_vec()),
            false => Err(Error::invalid(format_args!(
                "{} {} declared, the op has {}",
                counted(self.outputs.len(), "output"),
                if self.outputs.len() == 1 { "is" } else { "are" },
                inferred.len()
            ))),
        }
    }

    /// Returns the operands that the caller fills, with their index.
    pub fn fed(&self) -> impl Iterator<Item = (usize, &Operand)> {
        let inputs = self.inputs.iter().enumerate();
        inputs.filter_map(|(i, o)| o.as_ref().filter(|o| o.kind == Kind::Fed).map(|o| (i, o)))
    }

    /// Returns a number that changes with everything that determines the outputs: FNV-1a over the model and the data.
    pub fn fingerprint(&self, model: &Model) -> u64 {
        let mut text = String::new();
        let mut add = |piece: &dyn std::fmt::Debug| {
            let _ = write!(text, "{piece:?};");
        };
        for graph in model.subgraphs() {
            for t in graph.tensors() {
                let quantization = t.quantization().map(Fingerprinted);
                add(&(t.ty(), t.shape(), quantization, t.sparsity(), t.is_variable(), model.constant(t)));
            }
            for n in graph.nodes() {
                add(&(n.op(), n.version(), given(n), n.inputs(), n.outputs(), n.intermediates()));
            }
            add(&(graph.inputs(), graph.outputs()));
        }
        for step in 0..self.steps {
            self.fed().for_each(|(i, operand)| add(&operand.fed_data(i, step)));
        }
        let hash = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01B3);
        text.bytes().fold(0xCBF2_9CE4_8422_2325, hash)
    }

    /// Runs the case, and returns type, shape, whether quantized, and bytes of every output in every step.
    ///
    /// # Errors
    /// The interpreter's error.
    pub fn run(&self, model: Model, resolver: impl OpResolver + 'static) -> Result<Vec<Computed>, Error> {
        let limits = ResourceLimits::default().with_memory(MAX_MEMORY);
        let builder = Interpreter::builder(model).resolver(resolver).threads(1).limits(limits);
        let mut interpreter = builder.build()?;
        let mut all = Vec::new();
        for step in 0..self.steps {
            for (position, (i, operand)) in self.fed().enumerate() {
                let data = operand.fed_data(i, step);
                interpreter.set_input_bytes(position, &data)?;
            }
            interpreter.invoke()?;
            for i in 0..interpreter.output_count() {
                let t = interpreter.output_tensor(i)?;
                all.push(Computed {
                    ty: t.ty,
                    shape: t.shape.clone(),
                    quantized: t.quantization.is_some(),
                    bytes: t.bytes().to_vec(),
                });
            }
        }
        Ok(all)
    }

    /// Returns whether the kernels of a resolver accept the case, without running it.
    pub fn prepares(&self, resolver: impl OpResolver + 'static) -> bool {
        let Ok(model) = self.build() else { return false };
        let builder = Interpreter::builder(model).resolver(resolver).threads(1);
        builder.build().is_ok()
    }

    /// Returns whether a delegate claims a node of the op that is not computed while preparing: in the case as it is,
    /// with all operands except the data constant (as indices and paddings mostly are in real models), or with only the
    /// data constant.
    pub fn is_claimed(&self, delegate: impl Fn() -> Box<dyn Delegate>) -> bool {
        self.is_claimed_under(Policy::Report, delegate)
    }

    /// As [`Case::is_claimed`]; the delegate must also create its kernels, so that CPU kernels need not support the
    /// types.
    pub(super) fn is_taken_over(&self, delegate: impl Fn() -> Box<dyn Delegate>) -> bool {
        self.is_claimed_under(Policy::Prefer, delegate)
    }

    fn is_claimed_under(&self, policy: Policy, delegate: impl Fn() -> Box<dyn Delegate>) -> bool {
        let variants = [self.clone(), self.with_constants(), self.with_data_alone_constant()];
        variants.iter().any(|case| case.claimed_by(delegate(), policy))
    }

    fn claimed_by(&self, delegate: Box<dyn Delegate>, policy: Policy) -> bool {
        let Ok(model) = self.build() else { return false };
        let builder = Interpreter::builder(model).delegate(delegate).policy(policy);
        builder.build().is_ok_and(|interpreter| {
            let graph = &interpreter.model().subgraphs()[0];
            let is_constant = |id: &TensorId| {
                let constant = [Placement::Constant, Placement::Released];
                interpreter.tensor(*id).is_ok_and(|t| constant.contains(&t.placement()))
            };
            let claimed = |n: &NodeReport| {
                n.op == Op::Builtin(self.op)
                    && matches!(n.runner, Runner::Delegate { .. })
                    && !graph.node(n.node).outputs().iter().any(is_constant)
            };
            interpreter.report().nodes.iter().any(claimed)
        })
    }

    fn with_constants(&self) -> Self {
        let mut case = self.clone();
        let data = data_operand(self.op);
        for (i, operand) in case.inputs.iter_mut().enumerate() {
            if let Some(operand) = operand.as_mut().filter(|o| i != data && matches!(o.kind, Kind::Fed)) {
                operand.kind = Kind::Constant;
            }
        }
        case
    }

    fn with_data_alone_constant(&self) -> Self {
        let mut case = self.clone();
        let data = data_operand(self.op);
        for (i, operand) in case.inputs.iter_mut().enumerate() {
            if let Some(operand) = operand.as_mut().filter(|o| matches!(o.kind, Kind::Fed | Kind::Constant)) {
                operand.kind = if i == data { Kind::Constant } else { Kind::Fed };
            }
        }
        case
    }

    /// Returns the versions of `op` in the model.
    pub fn versions(&self, model: &Model) -> Vec<u32> {
        let nodes = model.subgraphs().iter().flat_map(|g| g.nodes());
        nodes.filter(|n| *n.op() == Op::Builtin(self.op)).map(|n| n.version()).collect()
    }

    /// Returns the case with `ty` in all operands that have the data type, and unchanged output shapes. `None` for
    /// cases with a model of their own, if the data type is already `ty`, and if the outputs cannot be inferred.
    pub(super) fn retyped(&self, ty: TensorType) -> Option<Self> {
        let whole = self.model.is_some() || self.made.is_some();
        let from = self.data_type().filter(|from| *from != ty && !whole)?;
        let mut case = self.clone();
        let outputs = self.infer().ok()?;
        case.forced = Some(outputs.iter().map(|o| if o.ty == from { ty } else { o.ty }).collect());
        for (output, inferred) in case.outputs.iter_mut().zip(outputs) {
            if let InferredShape::Known(shape) = inferred.shape {
                output.shape = Some(shape);
            }
        }
        for operand in case.inputs.iter_mut().flatten().filter(|o| o.ty == from) {
            operand.retype(ty);
        }
        case.data_type = Some(ty);
        Some(case)
    }

    /// Declares the outputs of `base` if this case's cannot be inferred, so that it can be written although it is
    /// invalid here.
    pub(super) fn output_as(&mut self, base: &Case) {
        if self.infer().is_ok() {
            return;
        }
        let Ok(outputs) = base.infer() else { return };
        self.forced = Some(outputs.iter().map(|o| o.ty).collect());
        for (output, inferred) in self.outputs.iter_mut().zip(outputs) {
            if let InferredShape::Known(shape) = inferred.shape {
                output.shape = Some(shape);
            }
        }
    }

    /// Returns the types of all operands, in order, and whether each is quantized.
    pub(super) fn operand_types(&self) -> Vec<(TensorType, bool)> {
        let operand = |o: &Operand| (o.ty, o.quantization.is_some());
        self.inputs.iter().flatten().map(operand).collect()
    }

    /// Returns the name without its unique suffix.
    pub(super) fn label(&self) -> String {
        let op = self.op.variant_name().unwrap_or("?").to_lowercase();
        let ty = self.data_type().map(|t| format!("_{}", t.name().to_lowercase())).unwrap_or_default();
        let version = self.version.map(|v| format!("_v{v}")).unwrap_or_default();
        let detail = if self.detail.is_empty() { String::new() } else { format!("_{}", self.detail) };
        let family = self.family.or(definition(self.op).map(|d| d.family)).unwrap_or("?");
        format!("{family}/{op}{ty}{detail}{version}")
    }
}

/// An output.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Computed {
    /// Element type.
    pub ty: TensorType,
    /// Shape.
    pub shape: Shape,
    /// The output has a scale.
    pub quantized: bool,
    /// The elements.
    pub bytes: Vec<u8>,
}

/// A quantization in the form that fingerprints contain: tensors by their bare indices.
struct Fingerprinted<'a>(&'a Quantization);

impl fmt::Debug for Fingerprinted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let id = |tensor: &TensorId| tensor.0;
        match self.0 {
            Quantization::Blockwise { scales, zero_points, block_size } => f
                .debug_struct("Blockwise")
                .field("scales", &scales.0)
                .field("zero_points", &zero_points.as_ref().map(id))
                .field("block_size", block_size)
                .finish(),
            Quantization::MultiAxis { scales, zero_points, block_size, dimensions } => f
                .debug_struct("MultiAxis")
                .field("scales", &scales.0)
                .field("zero_points", &zero_points.as_ref().map(id))
                .field("block_size", block_size)
                .field("dimensions", dimensions)
                .finish(),
            other => other.fmt(f),
        }
    }
}

/// Returns the params that differ from their defaults, by name, so that new params of later versions do not change the
/// fingerprints of existing cases.
fn given(node: &Node) -> Vec<(&'static str, ParamValue<'_>)> {
    let Some(codec) = node.op().builtin().and_then(definition).map(|def| &def.codec) else {
        return Vec::new();
    };
    let defaults = codec.defaults().unwrap_or(Params::None);
    let mut given: Vec<_> = codec
        .fields
        .iter()
        .filter_map(|field| Some((field.name, node.param(field.name)?)))
        .filter(|(name, value)| defaults.get(name).as_ref() != Some(value))
        .collect();
    given.sort_by_key(|(name, _)| *name);
    given
}

/// Returns the index of the operand that holds the op's data.
fn data_operand(op: BuiltinOp) -> usize {
    match op {
        BuiltinOp::SPLIT | BuiltinOp::FILL | BuiltinOp::SELECT | BuiltinOp::SELECT_V2 => 1,
        BuiltinOp::SCATTER_ND | BuiltinOp::EMBEDDING_LOOKUP | BuiltinOp::ASSIGN_VARIABLE => 1,
        BuiltinOp::TRANSPOSE_CONV | BuiltinOp::SPARSE_TO_DENSE | BuiltinOp::CONV_3D_TRANSPOSE => 2,
        BuiltinOp::HASHTABLE_LOOKUP | BuiltinOp::HASHTABLE_FIND | BuiltinOp::HASHTABLE_IMPORT => 2,
        BuiltinOp::EMBEDDING_LOOKUP_SPARSE => 4,
        BuiltinOp::IF | BuiltinOp::STABLEHLO_CASE => 1,
        _ => 0,
    }
}
