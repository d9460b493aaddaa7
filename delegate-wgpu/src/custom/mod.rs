//! Custom ops of an application on the GPU.

use std::fmt;
use std::sync::Arc;

use delegraph_core::flex::Map;
use delegraph_core::{Shape, TensorType};
use delegraph_delegate_api::{NodeView, Rejection, TensorInfo};
use delegraph_shaders::{Caps, Features, Kernel, ShaderError};

use crate::graph::ValueId;
use crate::lower::{Lowering, unsupported};
use shader::{Array, Shader};

mod shader;
#[cfg(test)]
mod tests;

/// The name of these kernels among others. Their shaders always run with wgpu's checks.
pub(crate) const NAME: &str = "custom";

type Plan = dyn Fn(&WgpuNode<'_>) -> Result<WgpuPlan, Rejection> + Send + Sync;

/// A custom op that runs on the GPU: its shaders, and what to do with them for a node.
///
/// A shader is WGSL text with one entry point, `@compute fn main`. What it binds, in group 0 and numbered from 0, decides
/// how it is used: each `var<storage, read>` is a tensor that it reads, the one `var<storage, read_write>` is the tensor
/// that it writes, and a `var<uniform>` takes the bytes that a dispatch brings. Tensors are dense and row-major, FLOAT32 as
/// `array<f32>`, INT32 as `array<i32>` and BOOL as `array<u32>` of zeros and ones, or arrays of vectors of two or four
/// where the number of elements is a multiple. A shader must run within WebGPU's default limits.
///
/// ```
/// use delegraph_delegate_wgpu::{WgpuDispatch, WgpuOp, WgpuOptions, WgpuPlan, WgpuTensor};
///
/// // y = x + bias, where the bias is an option of the node.
/// const SHADER: &str = "
///     @group(0) @binding(0) var<storage, read> x: array<f32>;
///     @group(0) @binding(1) var<storage, read_write> y: array<f32>;
///     @group(0) @binding(2) var<uniform> bias: vec4<f32>;
///
///     @compute @workgroup_size(64)
///     fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
///             @builtin(local_invocation_index) local: u32) {
///         let i = (group.y * groups.x + group.x) * 64u + local;
///         if i < arrayLength(&y) {
///             y[i] = x[i] + bias.x;
///         }
///     }";
///
/// let op = WgpuOp::new("AddBias", 1, &[SHADER], |node| {
///     let shape = node.input(0)?.shape;
///     let bias: f32 = node.options()?.get("bias").map_err(|e| node.reject(e))?;
///     let dispatch = WgpuDispatch::new(0, [WgpuTensor::Input(0)], WgpuTensor::Output(0))
///         .uniform([bias, 0.0, 0.0, 0.0].map(f32::to_le_bytes).concat())
///         .workgroups(node.workgroups(shape.elements(), 64)?);
///     Ok(WgpuPlan::new([shape.clone()]).dispatch(dispatch))
/// })?;
/// let options = WgpuOptions::default().custom_op(op);
/// # Ok::<(), delegraph_delegate_wgpu::WgpuOpError>(())
/// ```
///
/// The application registers a CPU kernel for the op as well: it says what shapes its outputs have, and runs where there is
/// no GPU.
#[derive(Clone)]
pub struct WgpuOp(Arc<Inner>);

struct Inner {
    name: String,
    max_version: u32,
    shaders: Vec<Arc<Shader>>,
    plan: Box<Plan>,
}

/// A shader that does not do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("custom op \"{op}\", shader {shader}{}: {message}", at(.line, .text))]
pub struct WgpuOpError {
    /// The op.
    pub op: String,
    /// Which of its shaders.
    pub shader: usize,
    /// The line that is wrong, counted from 1, where it is a matter of one.
    pub line: Option<u32>,
    /// What is in that line.
    pub text: Option<String>,
    /// What is wrong.
    pub message: String,
}

fn at(line: &Option<u32>, text: &Option<String>) -> String {
    let text = text.as_ref().map_or(String::new(), |text| format!(", `{text}`"));
    line.map_or(String::new(), |line| format!(", line {line}{text}"))
}

impl WgpuOp {
    /// The op `name` up to `max_version`. `plan` says what a node takes, or why it stays with the CPU.
    ///
    /// # Errors
    /// Where one of the shaders is wrong, with the line.
    pub fn new(
        name: impl Into<String>,
        max_version: u32,
        shaders: &[&str],
        plan: impl Fn(&WgpuNode<'_>) -> Result<WgpuPlan, Rejection> + Send + Sync + 'static,
    ) -> Result<Self, WgpuOpError> {
        let name = name.into();
        let check = |(i, wgsl): (usize, &&str)| Shader::new(&name, i, wgsl).map(Arc::new);
        let shaders = shaders.iter().enumerate().map(check).collect::<Result<_, _>>()?;
        Ok(WgpuOp(Arc::new(Inner { name, max_version, shaders, plan: Box::new(plan) })))
    }

    /// The name of the op.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// The highest version that it is for.
    pub fn max_version(&self) -> u32 {
        self.0.max_version
    }
}

impl fmt::Debug for WgpuOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WgpuOp({:?}, version {})", self.0.name, self.0.max_version)
    }
}

impl PartialEq for WgpuOp {
    /// The same registration.
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// A node that is to run on the GPU.
#[derive(Clone, Copy)]
pub struct WgpuNode<'a> {
    view: NodeView<'a>,
    most_workgroups: u32,
}

/// An operand of a [`WgpuNode`] whose shape is known.
#[derive(Clone, Copy)]
pub struct WgpuOperand<'a> {
    /// Its shape.
    pub shape: &'a Shape,
    /// Element type.
    pub ty: TensorType,
    /// All that is known of it: its name, quantization, constant data.
    pub info: TensorInfo<'a>,
}

impl<'a> WgpuNode<'a> {
    /// The node itself: op, version, all operands.
    pub fn view(&self) -> NodeView<'a> {
        self.view
    }

    /// The version of the op that the model asks for.
    pub fn version(&self) -> u32 {
        self.view.version()
    }

    /// The options, as a FlexBuffer map.
    ///
    /// # Errors
    /// A rejection where they are none.
    pub fn options(&self) -> Result<Map<'a>, Rejection> {
        Map::parse(self.view.custom_options()).map_err(|e| self.reject(e))
    }

    /// Input `i`.
    ///
    /// # Errors
    /// A rejection where the node leaves it out, or its shape is known only while running.
    pub fn input(&self, i: usize) -> Result<WgpuOperand<'a>, Rejection> {
        operand(self.view.input(i), "input", i)
    }

    /// Output `i`.
    ///
    /// # Errors
    /// As [`WgpuNode::input`].
    pub fn output(&self, i: usize) -> Result<WgpuOperand<'a>, Rejection> {
        operand(self.view.output(i), "output", i)
    }

    /// How many workgroups of `per_group` items each take to reach `items` of them: in x, and folded into y where x is too
    /// short for all. The shader finds its item as `(group.y * groups.x + group.x) * per_group + local`.
    ///
    /// # Errors
    /// A rejection where there are too many for one dispatch.
    pub fn workgroups(&self, items: usize, per_group: u32) -> Result<[u32; 3], Rejection> {
        let too_many = || Rejection::DeviceLimit(format!("{items} items, {per_group} to a workgroup"));
        let items = u64::try_from(items).map_err(|_| too_many())?;
        let groups = items.div_ceil(per_group.max(1).into());
        let most = u64::from(self.most_workgroups.max(1));
        let rows = groups.div_ceil(most).max(1);
        let fits = |n: u64| u32::try_from(n).ok().filter(|&n| u64::from(n) <= most).ok_or_else(too_many);
        Ok([fits(groups.div_ceil(rows))?, fits(rows)?, 1])
    }

    /// Why the node stays with the CPU, in words: an option, a shape, a combination of operands.
    pub fn reject(&self, why: impl fmt::Display) -> Rejection {
        unsupported(why.to_string())
    }
}

fn operand<'a>(info: Option<TensorInfo<'a>>, what: &str, i: usize) -> Result<WgpuOperand<'a>, Rejection> {
    let info = info.ok_or_else(|| unsupported(format!("{what} {i} is missing")))?;
    let dynamic = || Rejection::DynamicShape { tensor: info.name().to_owned() };
    Ok(WgpuOperand { shape: info.shape().ok_or_else(dynamic)?, ty: info.ty(), info })
}

/// A tensor that a dispatch reads or writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WgpuTensor {
    /// Input of the node.
    Input(usize),
    /// Output of the node.
    Output(usize),
    /// One of the plan's temporaries.
    Temporary(usize),
}

/// What a node takes: the shapes of its outputs, temporaries, and dispatches in the order in which they run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WgpuPlan {
    outputs: Vec<Shape>,
    temporaries: Vec<Shape>,
    dispatches: Vec<WgpuDispatch>,
}

impl WgpuPlan {
    /// The shape of every output, as the shaders write it. A node whose outputs have other shapes is rejected.
    pub fn new(outputs: impl IntoIterator<Item = impl Into<Shape>>) -> Self {
        let outputs = outputs.into_iter().map(Into::into).collect();
        WgpuPlan { outputs, temporaries: Vec::new(), dispatches: Vec::new() }
    }

    /// FLOAT32 values between dispatches; the first is `WgpuTensor::Temporary(0)`. They share memory with whatever lives at
    /// other times.
    #[must_use]
    pub fn temporary(mut self, shape: impl Into<Shape>) -> Self {
        self.temporaries.push(shape.into());
        self
    }

    /// Adds a dispatch.
    #[must_use]
    pub fn dispatch(mut self, dispatch: WgpuDispatch) -> Self {
        self.dispatches.push(dispatch);
        self
    }
}

/// One run of a shader.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WgpuDispatch {
    shader: usize,
    reads: Vec<WgpuTensor>,
    writes: WgpuTensor,
    uniform: Vec<u8>,
    workgroups: [u32; 3],
}

impl WgpuDispatch {
    /// Runs shader `shader` of the op, in one workgroup. `reads` are what its `read` bindings get, in the order of their
    /// numbers, and `writes` what its `read_write` binding gets.
    pub fn new(shader: usize, reads: impl IntoIterator<Item = WgpuTensor>, writes: WgpuTensor) -> Self {
        let (reads, uniform) = (reads.into_iter().collect(), Vec::new());
        WgpuDispatch { shader, reads, writes, uniform, workgroups: [1, 1, 1] }
    }

    /// What the uniform block holds, as WGSL lays it out.
    #[must_use]
    pub fn uniform(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.uniform = bytes.into();
        self
    }

    /// Workgroups in x, y and z.
    #[must_use]
    pub fn workgroups(mut self, workgroups: [u32; 3]) -> Self {
        self.workgroups = workgroups;
        self
    }
}

/// A dispatch as a step of the graph.
#[derive(Debug, Clone)]
pub(crate) struct Spec {
    shader: Arc<Shader>,
    uniform: Vec<u8>,
    workgroups: [u32; 3],
}

impl PartialEq for Spec {
    fn eq(&self, other: &Self) -> bool {
        let parts = |spec: &Self| (spec.uniform.clone(), spec.workgroups);
        Arc::ptr_eq(&self.shader, &other.shader) && parts(self) == parts(other)
    }
}

impl Spec {
    pub(crate) fn kernel(&self, caps: &Caps) -> Result<Kernel, ShaderError> {
        let most = caps.max_workgroups_per_dimension;
        if self.workgroups.iter().any(|&n| n > most) {
            let why = format!("{:?} workgroups, of which a dimension takes {most}", self.workgroups);
            return Err(ShaderError::Unsupported { kernel: NAME, why });
        }
        Ok(Kernel {
            name: NAME,
            // The text itself: equal keys mean equal texts.
            key: format!("{NAME} {}", self.shader.wgsl),
            wgsl: self.shader.wgsl.clone(),
            entry: "main",
            bindings: self.shader.bindings.clone(),
            uniform: self.uniform.clone(),
            dispatch: self.workgroups,
            features: Features::default(),
        })
    }
}

/// Adds the dispatches of a node to the graph.
pub(crate) fn lower(op: &WgpuOp, cx: &mut Lowering<'_, '_, '_>) -> Result<(), Rejection> {
    let node = WgpuNode { view: cx.node(), most_workgroups: cx.caps().max_workgroups_per_dimension };
    let plan = (op.0.plan)(&node)?;
    let count = node.view.num_outputs();
    if plan.outputs.len() != count {
        return Err(unsupported(format!("{count} outputs, the GPU kernel has {}", plan.outputs.len())));
    }
    for (i, computed) in plan.outputs.iter().enumerate() {
        let wanted = node.output(i)?.shape;
        if wanted != computed {
            let text = format!("output {i} has the shape {wanted}, the GPU kernel computes {computed}");
            return Err(unsupported(text));
        }
    }
    let mut temporaries = Vec::new();
    for shape in &plan.temporaries {
        let dims: Result<Vec<u32>, _> = shape.iter().map(|&d| u32::try_from(d)).collect();
        let dims = dims.map_err(|_| Rejection::DeviceLimit(format!("a temporary of shape {shape}")))?;
        temporaries.push(cx.checked_temporary(&dims)?);
    }
    // What is wrong with the plan is its author's fault, whatever the node.
    let fault = |i: usize, text: String| Rejection::Other(format!("dispatch {i} of {}: {text}", op.name()));
    let mut written = vec![false; count];
    for (i, dispatch) in plan.dispatches.iter().enumerate() {
        let fault = |text: String| fault(i, text);
        let shader = op.0.shaders.get(dispatch.shader);
        let shader = shader.ok_or_else(|| fault(format!("there is no shader {}", dispatch.shader)))?;
        let (has, wants) = (dispatch.reads.len(), shader.reads.len());
        if has != wants {
            return Err(fault(format!("it names {has} tensors to read, the shader binds {wants}")));
        }
        let (bytes, block) = (dispatch.uniform.len(), shader.uniform);
        if bytes != block {
            return Err(fault(format!("{bytes} bytes for the uniform block, the shader's has {block}")));
        }
        let value = |cx: &mut Lowering<'_, '_, '_>, tensor: WgpuTensor, array: Array| {
            let id = match tensor {
                WgpuTensor::Input(i) => cx.any_input(i)?,
                WgpuTensor::Output(i) => cx.output(i)?,
                WgpuTensor::Temporary(i) => {
                    *temporaries.get(i).ok_or_else(|| fault(format!("there is no temporary {i}")))?
                }
            };
            check(cx, id, tensor, array, &node)?;
            Ok(id)
        };
        let reads = dispatch.reads.iter().zip(&shader.reads);
        let reads =
            reads.map(|(t, array)| value(cx, *t, *array)).collect::<Result<Vec<ValueId>, Rejection>>()?;
        let output = match dispatch.writes {
            WgpuTensor::Input(i) => return Err(fault(format!("it writes input {i}"))),
            tensor => value(cx, tensor, shader.writes)?,
        };
        if reads.contains(&output) {
            return Err(fault("it reads what it writes".into()));
        }
        if let WgpuTensor::Output(i) = dispatch.writes
            && let Some(written) = written.get_mut(i)
        {
            *written = true;
        }
        let (uniform, workgroups) = (dispatch.uniform.clone(), dispatch.workgroups);
        cx.push(Spec { shader: shader.clone(), uniform, workgroups }, &reads, output)?;
    }
    match written.iter().position(|written| !written) {
        Some(i) => Err(Rejection::Other(format!("no dispatch of {} writes output {i}", op.name()))),
        None => Ok(()),
    }
}

/// Checks that the shader's array can hold a value.
fn check(
    cx: &Lowering<'_, '_, '_>,
    id: ValueId,
    tensor: WgpuTensor,
    array: Array,
    node: &WgpuNode<'_>,
) -> Result<(), Rejection> {
    let (operand, ty) = match tensor {
        WgpuTensor::Input(i) => (format!("input {i}"), node.input(i)?.ty),
        WgpuTensor::Output(i) => (format!("output {i}"), node.output(i)?.ty),
        WgpuTensor::Temporary(i) => (format!("temporary {i}"), TensorType::Float32),
    };
    if cx.element(id) != array.element {
        return Err(Rejection::UnsupportedType { operand, ty });
    }
    let elements: usize = cx.shape(id).iter().map(|&d| d as usize).product();
    if !elements.is_multiple_of(array.lanes) {
        let text = format!("{operand} has {elements} elements, the shader takes {} at a time", array.lanes);
        return Err(unsupported(text));
    }
    Ok(())
}
