//! One case: a use of an op, small enough to be compared whole.

use std::fmt::{self, Write};
use std::sync::Arc;

use delegraph_core::kernel::Placement;
use delegraph_core::ops::cast::CastParams;
use delegraph_core::ops::{Declared, InferContext, InferTensor, Inferred, InferredShape, definition};
use delegraph_core::quantization::Affine;
use delegraph_core::{
    BuiltinOp, Model, ModelBuilder, Op, OpResolver, Params, Quantization, Shape, SubgraphBuilder, TensorId,
    TensorType,
};
use delegraph_delegate_api::{Delegate, NodeReport, Policy, Runner};
use delegraph_interpreter::Interpreter;

use super::operand::{Kind, Operand, growing, outside, quantum};

/// What a case is compared with.
#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    /// What LiteRT computes.
    LiteRt,
    /// What LiteRT computes, quantized outputs within one step, and why not exactly.
    Within1(&'static str),
    /// LiteRT does not run it (or does not run it in a way that can be compared), and why. It must not crash here.
    NotCompared(&'static str),
}

/// An output as the model declares it.
#[derive(Debug, Clone, Default)]
pub struct Output {
    ty: Option<TensorType>,
    shape: Option<Shape>,
    quantization: Option<Quantization>,
}

impl Output {
    /// An output of this type and shape, for what inference does not tell.
    pub fn new(ty: TensorType, shape: &[usize]) -> Self {
        Output { ty: Some(ty), shape: Some(Shape::new(shape)), quantization: None }
    }

    /// An output of this type.
    pub fn of(ty: TensorType) -> Self {
        Output { ty: Some(ty), ..Default::default() }
    }

    /// One scale and zero point.
    pub fn q(self, scale: f32, zero_point: i64) -> Self {
        Output { quantization: Some(Quantization::per_tensor(scale, zero_point)), ..self }
    }

    /// A scale for each of `count` indices of `dimension`, growing from `scale`.
    pub fn channels(self, scale: f32, count: usize, dimension: usize) -> Self {
        let affine = Affine { scales: growing(scale, count), zero_points: vec![0; count].into(), dimension };
        Output { quantization: Some(Quantization::Affine(affine)), ..self }
    }

    /// The scale and zero point that cases use for type `ty`, where it is a quantized one.
    pub fn auto(self, ty: TensorType) -> Self {
        match quantum(ty) {
            Some((scale, zero_point)) => self.q(scale, zero_point),
            None => self,
        }
    }
}

/// Makes a model when it is needed.
pub(super) type Make = Arc<dyn Fn() -> Result<Model, String> + Send + Sync>;

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
    /// How often it is run on one interpreter, each time on other data.
    pub steps: usize,
    /// What it is compared with.
    pub verdict: Verdict,
    detail: String,
    data_type: Option<TensorType>,
    version: Option<u32>,
    params: Params,
    pub(super) inputs: Vec<Option<Operand>>,
    outputs: Vec<Output>,
    intermediates: Vec<Option<Operand>>,
    /// Subgraphs that the op calls.
    pub(super) called: Vec<SubgraphBuilder>,
    /// The outputs' types, whatever inference says.
    forced: Option<Vec<TensorType>>,
    /// A whole model, where one node does not make sense alone.
    pub(super) model: Option<ModelBuilder>,
    /// The same, made when it is needed.
    pub(super) made: Option<Made>,
    /// Where it is told apart from others of its op: the first part of its name.
    family: Option<&'static str>,
    /// What its data is made from, where it is not one of the listed cases.
    pub(super) seed: Option<u64>,
}

impl Case {
    /// A node of this op with one output.
    pub fn new(op: BuiltinOp, params: impl Into<Params>, inputs: impl IntoIterator<Item = Operand>) -> Self {
        Self::optional(op, params, inputs.into_iter().map(Some))
    }

    /// A node of this op with one output, some of whose inputs are left out.
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

    /// A model that shows what `op` does; its inputs get the data of `inputs`.
    pub fn model(op: BuiltinOp, model: ModelBuilder, inputs: impl IntoIterator<Item = Operand>) -> Self {
        Case { model: Some(model), ..Self::new(op, Params::None, inputs) }
    }

    /// The same, the model being made when it is needed.
    pub(super) fn made(op: BuiltinOp, make: Make, inputs: impl IntoIterator<Item = Operand>) -> Self {
        Case { made: Some(Made(make)), seed: Some(0), ..Self::new(op, Params::None, inputs) }
    }

    /// Names it after another family than that of its op.
    pub(super) fn in_family(self, family: &'static str) -> Self {
        Case { family: Some(family), ..self }
    }

    /// Makes its data from another seed than that of the listed cases.
    pub(super) fn seeded(mut self, seed: u64) -> Self {
        self.inputs.iter_mut().flatten().for_each(|o| o.seed = seed);
        Case { seed: Some(seed), ..self }
    }

    /// Says what is special about it.
    pub fn detail(self, detail: impl Into<String>) -> Self {
        Case { detail: detail.into(), ..self }
    }

    /// The outputs.
    pub fn outputs(self, outputs: impl IntoIterator<Item = Output>) -> Self {
        Case { outputs: outputs.into_iter().collect(), ..self }
    }

    /// The only output has this scale and zero point.
    pub fn q(self, scale: f32, zero_point: i64) -> Self {
        self.outputs([Output::default().q(scale, zero_point)])
    }

    /// All outputs are quantized as the cases' data of type `ty` is.
    pub fn auto(self, ty: TensorType) -> Self {
        let outputs = self.outputs.clone().into_iter().map(|o| o.auto(ty));
        self.outputs(outputs.collect::<Vec<_>>())
    }

    /// All outputs are of this type.
    pub fn outputs_of(mut self, ty: TensorType) -> Self {
        self.outputs.iter_mut().for_each(|o| o.ty = Some(ty));
        self
    }

    /// The type whose support the case shows, where it is not that of the op's data operand.
    pub fn of(self, ty: TensorType) -> Self {
        Case { data_type: Some(ty), ..self }
    }

    /// The version that the model asks for; the lowest sufficient one where it is not given.
    pub fn version(self, version: u32) -> Self {
        Case { version: Some(version), ..self }
    }

    /// Runs more than once.
    pub fn steps(self, steps: usize) -> Self {
        Case { steps, ..self }
    }

    /// What it is compared with.
    pub fn verdict(self, verdict: Verdict) -> Self {
        Case { verdict, ..self }
    }

    /// Tensors that carry the quantization of values inside the op.
    pub fn intermediates(self, intermediates: impl IntoIterator<Item = Option<Operand>>) -> Self {
        Case { intermediates: intermediates.into_iter().collect(), ..self }
    }

    /// Subgraphs 1, 2, … of the model.
    pub fn calls(self, called: impl IntoIterator<Item = SubgraphBuilder>) -> Self {
        Case { called: called.into_iter().collect(), ..self }
    }

    /// The type of the op's data operand.
    pub fn data_type(&self) -> Option<TensorType> {
        self.data_type.or_else(|| {
            let operand = self.inputs.get(data_operand(self.op)).or(self.inputs.first())?;
            operand.as_ref().map(|o| o.ty)
        })
    }

    /// The model.
    ///
    /// # Errors
    /// What is wrong with the case.
    pub fn build(&self) -> Result<Model, String> {
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
        builder.build().map_err(|e| e.to_string())
    }

    fn graph(&self) -> Result<SubgraphBuilder, String> {
        let mut graph = SubgraphBuilder::new("main");
        let mut inputs = Vec::new();
        for (i, operand) in self.inputs.iter().enumerate() {
            inputs.push(operand.as_ref().map(|o| o.add(&mut graph, &format!("input_{i}"), i)));
        }
        let mut intermediates = Vec::new();
        for (i, operand) in self.intermediates.iter().enumerate() {
            let tensor = |o: &Operand, graph: &mut SubgraphBuilder| {
                let id = graph.tensor(&format!("intermediate_{i}"), o.ty, o.shape.clone());
                o.quantization.iter().for_each(|q| graph.quantize(id, q.clone()));
                id
            };
            intermediates.push(operand.as_ref().map(|o| tensor(o, &mut graph)));
        }
        let (mut outputs, mut types, mut shapes) = (Vec::new(), Vec::new(), Vec::new());
        for (i, (inferred, output)) in self.infer()?.into_iter().zip(&self.outputs).enumerate() {
            let shape = match (inferred.shape, &output.shape) {
                (InferredShape::Known(shape), _) => shape,
                (_, Some(shape)) => shape.clone(),
                _ => return Err(format!("the shape of output {i} must be given")),
            };
            types.push(inferred.ty);
            shapes.push(shape.clone());
            let id = graph.tensor(&format!("output_{i}"), inferred.ty, shape);
            output.quantization.iter().for_each(|q| graph.quantize(id, q.clone()));
            outputs.push(id);
        }
        let mut node = graph.node(self.op, self.params.clone());
        if let Some(version) = self.version {
            node = node.version(version);
        }
        node.optional_inputs(inputs).intermediates(intermediates).writes(outputs.clone());
        for (i, (id, ty)) in outputs.into_iter().zip(types).enumerate() {
            let read = match outside(ty) {
                same if same == ty => id,
                wide => {
                    let shape = shapes.get(i).cloned().unwrap_or_default();
                    let read = graph.tensor(&format!("read_{i}"), wide, shape);
                    graph
                        .node(BuiltinOp::CAST, CastParams { in_data_type: ty, out_data_type: wide })
                        .inputs([id])
                        .writes([read]);
                    read
                }
            };
            graph.outputs([read]);
        }
        Ok(graph)
    }

    fn infer(&self) -> Result<Vec<Inferred>, String> {
        if let Some(types) = &self.forced {
            let output = |(&ty, output): (&TensorType, &Output)| match &output.shape {
                Some(shape) => Inferred::known(ty, shape.clone()),
                None => Inferred { ty, shape: InferredShape::DataDependent },
            };
            return Ok(types.iter().zip(&self.outputs).map(output).collect());
        }
        let definition = definition(self.op).ok_or("the op has no definition")?;
        let constants: Vec<Option<Vec<u8>>> = (self.inputs.iter().enumerate())
            .map(|(i, o)| o.as_ref().filter(|o| o.kind == Kind::Constant).map(|o| o.data(i, 0)))
            .collect();
        let scalar = Shape::default();
        let first = self.inputs.iter().flatten().next().map_or(TensorType::Float32, |o| o.ty);
        let newest = definition.history.last().map_or(1, |(version, _)| *version);
        let operand = |(o, constant)| -> Option<InferTensor<'_>> {
            let (o, constant): (&Option<Operand>, &Option<Vec<u8>>) = (o, constant);
            o.as_ref().map(|o| InferTensor {
                ty: o.ty,
                shape: &o.shape,
                quantization: o.quantization.as_ref(),
                constant: constant.as_deref(),
            })
        };
        let cx = InferContext {
            params: &self.params,
            version: self.version.unwrap_or(newest),
            inputs: self.inputs.iter().zip(&constants).map(operand).collect(),
            outputs: (self.outputs.iter())
                .map(|o| Declared {
                    ty: o.ty.unwrap_or(first),
                    shape: o.shape.as_ref().unwrap_or(&scalar),
                    quantization: o.quantization.as_ref(),
                })
                .collect(),
        };
        let inferred = (definition.infer)(&cx).map_err(|e| e.to_string())?;
        match inferred.len() == self.outputs.len() {
            true => Ok(inferred.into_vec()),
            false => {
                Err(format!("{} outputs are declared, the op has {}", self.outputs.len(), inferred.len()))
            }
        }
    }

    /// The operands that the caller fills, with their index.
    pub fn fed(&self) -> impl Iterator<Item = (usize, &Operand)> {
        let inputs = self.inputs.iter().enumerate();
        inputs.filter_map(|(i, o)| o.as_ref().filter(|o| o.kind == Kind::Fed).map(|o| (i, o)))
    }

    /// A number that changes with anything that decides the outputs: FNV-1a over all that the model says and the data.
    pub fn fingerprint(&self, model: &Model) -> u64 {
        let mut text = String::new();
        let mut add = |piece: &dyn std::fmt::Debug| {
            let _ = write!(text, "{piece:?};");
        };
        for graph in &model.subgraphs {
            for t in &graph.tensors {
                add(&(t.ty, &t.shape, &t.quantization, &t.sparsity, t.is_variable, model.constant(t)));
            }
            for n in &graph.nodes {
                add(&(&n.op, n.version, &n.params, &n.inputs, &n.outputs, &n.intermediates));
            }
            add(&(&graph.inputs, &graph.outputs));
        }
        for step in 0..self.steps {
            self.fed().for_each(|(i, operand)| add(&operand.fed_data(i, step)));
        }
        let hash = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01B3);
        text.bytes().fold(0xCBF2_9CE4_8422_2325, hash)
    }

    /// Type, shape, quantized or not, and bytes of every output in every step.
    ///
    /// # Errors
    /// What the interpreter says.
    pub fn run(&self, model: Model, resolver: impl OpResolver + 'static) -> Result<Vec<Computed>, String> {
        let text = |e: delegraph_core::Error| e.to_string();
        let builder = Interpreter::builder(model).resolver(resolver).threads(1);
        let mut interpreter = builder.build().map_err(text)?;
        let mut all = Vec::new();
        for step in 0..self.steps {
            for (position, (i, operand)) in self.fed().enumerate() {
                let data = operand.fed_data(i, step);
                interpreter.set_input_bytes(position, &data).map_err(text)?;
            }
            interpreter.invoke().map_err(text)?;
            for i in 0..interpreter.output_count() {
                let t = interpreter.output_tensor(i).map_err(text)?;
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

    /// Whether the kernels of a resolver accept it, without running it.
    pub fn prepares(&self, resolver: impl OpResolver + 'static) -> bool {
        let Ok(model) = self.build() else { return false };
        let builder = Interpreter::builder(model).resolver(resolver).threads(1);
        builder.build().is_ok()
    }

    /// Whether a delegate claims a node of the op, and not only because it was computed while preparing: in the case as
    /// it is, or where everything but the data is constant, as indices and paddings mostly are in real models.
    pub fn is_claimed(&self, delegate: impl Fn() -> Box<dyn Delegate>) -> bool {
        self.is_claimed_under(Policy::Report, delegate)
    }

    /// The same where the delegate is also to make its kernels, so that those on the CPU need not take the types.
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
            let graph = &interpreter.model().subgraphs[0];
            let is_constant = |id: &TensorId| {
                let constant = [Placement::Constant, Placement::Released];
                interpreter.tensor(*id).is_ok_and(|t| constant.contains(&t.placement()))
            };
            let claimed = |n: &NodeReport| {
                n.op == Op::Builtin(self.op)
                    && matches!(n.runner, Runner::Delegate { .. })
                    && !graph.node(n.node).outputs.iter().any(is_constant)
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

    /// Its versions of `op`, as the model has them.
    pub fn versions(&self, model: &Model) -> Vec<u32> {
        let nodes = model.subgraphs.iter().flat_map(|g| &g.nodes);
        nodes.filter(|n| n.op == Op::Builtin(self.op)).map(|n| n.version).collect()
    }

    /// The same with another data type in all operands that have it, the outputs' shapes being what they were. `None`
    /// for cases with a model of their own, and where the data type is `ty` already.
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

    /// The types of all operands, in order, and whether they are quantized.
    pub(super) fn operand_types(&self) -> Vec<(TensorType, bool)> {
        let operand = |o: &Operand| (o.ty, o.quantization.is_some());
        self.inputs.iter().flatten().map(operand).collect()
    }

    /// The name without what makes it unique.
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
pub struct Computed {
    /// Element type.
    pub ty: TensorType,
    /// Shape.
    pub shape: Shape,
    /// It has a scale.
    pub quantized: bool,
    /// The elements.
    pub bytes: Vec<u8>,
}

/// The operand that an op is about.
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
