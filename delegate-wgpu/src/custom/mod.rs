//! Custom ops of an application on the GPU.

use std::fmt;
use std::sync::Arc;

use delegraph_core::flex::Map;
use delegraph_core::{Shape, TensorType};
use delegraph_delegate_api::{NodeView, Rejection, TensorInfo};
use delegraph_shaders::{Caps, Features, Kernel, OtherSizes, ShaderError, Variant};

use shader::Shader;

mod shader;
#[cfg(test)]
mod tests;

pub(crate) use shader::Array;

/// The kernel name of custom ops. Their shaders always run with wgpu's checks.
pub(crate) const NAME: &str = "custom";

type Plan = dyn Fn(&WgpuNode<'_>) -> Result<WgpuPlan, Rejection> + Send + Sync;

/// A custom op that runs on the GPU: its shaders, and a function that plans their dispatches for a node.
///
/// A shader is WGSL source with one entry point, `@compute fn main`. Its bindings are in group 0, numbered from 0:
/// each `var<storage, read>` is a tensor that it reads, the one `var<storage, read_write>` is the tensor that it
/// writes, and a `var<uniform>` holds the bytes that a dispatch supplies. Tensors are dense and row-major, FLOAT32 as
/// `array<f32>`, INT32 as `array<i32>` and BOOL as `array<u32>` of zeros and ones. Arrays of vectors of two or four
/// elements are possible where the number of elements is a multiple. A shader must run within WebGPU's default
/// limits.
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
/// let options = WgpuOptions::default().with_custom_op(op);
/// # Ok::<(), delegraph_delegate_wgpu::WgpuOpError>(())
/// ```
///
/// The application also registers a CPU kernel for the op, which infers the shapes of the outputs, and runs where
/// there is no GPU.
#[derive(Clone)]
pub struct WgpuOp(Arc<Inner>);

struct Inner {
    name: String,
    max_version: u32,
    shaders: Vec<Arc<Shader>>,
    plan: Box<Plan>,
}

/// The reason why a shader of a custom op cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[error("custom op \"{op}\", shader {shader}{}: {message}", at(.line, .text))]
pub struct WgpuOpError {
    /// The op.
    pub op: String,
    /// Index of the shader in the op's list.
    pub shader: usize,
    /// The line of the error, counted from 1; `None` if the error concerns no single line.
    pub line: Option<u32>,
    /// The source of that line.
    pub text: Option<String>,
    /// The error.
    pub message: String,
}

fn at(line: &Option<u32>, text: &Option<String>) -> String {
    let text = text.as_ref().map_or(String::new(), |text| format!(", `{text}`"));
    line.map_or(String::new(), |line| format!(", line {line}{text}"))
}

impl WgpuOp {
    /// Creates the op `name` up to `max_version`. `plan` plans the dispatches of a node, or rejects the node with a
    /// reason.
    ///
    /// # Errors
    /// The first error in a shader, with its line.
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

    /// Returns the name of the op.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Returns the highest version that the op supports.
    pub fn max_version(&self) -> u32 {
        self.0.max_version
    }

    /// Returns the application's plan for a node.
    pub(crate) fn plan(&self, node: &WgpuNode<'_>) -> Result<WgpuPlan, Rejection> {
        (self.0.plan)(node)
    }

    /// Returns shader `i`; `None` if the op has fewer shaders.
    pub(crate) fn shader(&self, i: usize) -> Option<&Arc<Shader>> {
        self.0.shaders.get(i)
    }
}

impl fmt::Debug for WgpuOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WgpuOp({:?}, version {})", self.0.name, self.0.max_version)
    }
}

impl PartialEq for WgpuOp {
    /// Whether both ops are clones of one registration.
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// A node that may run on the GPU.
#[derive(Clone, Copy)]
pub struct WgpuNode<'a> {
    view: NodeView<'a>,
    max_workgroups: u32,
}

/// An operand of a [`WgpuNode`] whose shape is known.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct WgpuOperand<'a> {
    /// The shape.
    pub shape: &'a Shape,
    /// Element type.
    pub ty: TensorType,
    /// Further properties: name, quantization, constant data.
    pub info: TensorInfo<'a>,
}

impl fmt::Debug for WgpuNode<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WgpuNode")
            .field("id", &self.view.id())
            .field("op", self.view.op())
            .field("version", &self.view.version())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for WgpuOperand<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WgpuOperand")
            .field("id", &self.info.id())
            .field("name", &self.info.name())
            .field("shape", self.shape)
            .field("ty", &self.ty)
            .finish_non_exhaustive()
    }
}

impl<'a> WgpuNode<'a> {
    pub(crate) fn new(view: NodeView<'a>, max_workgroups: u32) -> Self {
        WgpuNode { view, max_workgroups }
    }

    /// Returns the view of the node: op, version, all operands.
    pub fn view(&self) -> NodeView<'a> {
        self.view
    }

    /// Returns the version of the op in the model.
    pub fn version(&self) -> u32 {
        self.view.version()
    }

    /// Returns the options, as a FlexBuffer map.
    ///
    /// # Errors
    /// A rejection if the options are not a map.
    pub fn options(&self) -> Result<Map<'a>, Rejection> {
        Map::parse(self.view.custom_options()).map_err(|e| self.reject(e))
    }

    /// Input `i`.
    ///
    /// # Errors
    /// A rejection if the node omits the input, or its shape is dynamic.
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

    /// Returns the number of workgroups in x, y and z for `items` items, with `per_group` items per workgroup. Where x
    /// would exceed the device's limit, the workgroups are spread over y. The shader computes its item as
    /// `(group.y * groups.x + group.x) * per_group + local`, and skips items from `items` on.
    ///
    /// # Errors
    /// A rejection if a dispatch cannot have that number of workgroups.
    pub fn workgroups(&self, items: usize, per_group: u32) -> Result<[u32; 3], Rejection> {
        let most = u64::from(self.max_workgroups.max(1));
        let too_many = || {
            Rejection::DeviceLimit(format!(
                "{items} items, {per_group} to a workgroup; \
                at most {most} workgroups in x and in y are supported"
            ))
        };
        let items = u64::try_from(items).map_err(|_| too_many())?;
        let groups = items.div_ceil(per_group.max(1).into());
        let rows = groups.div_ceil(most).max(1);
        let fits = |n: u64| u32::try_from(n).ok().filter(|&n| u64::from(n) <= most).ok_or_else(too_many);
        Ok([fits(groups.div_ceil(rows))?, fits(rows)?, 1])
    }

    /// Returns a rejection that keeps the node on the CPU. `why` names the option, shape or combination of operands.
    pub fn reject(&self, why: impl fmt::Display) -> Rejection {
        Rejection::UnsupportedParam(why.to_string())
    }
}

fn operand<'a>(info: Option<TensorInfo<'a>>, what: &str, i: usize) -> Result<WgpuOperand<'a>, Rejection> {
    let missing = || Rejection::UnsupportedParam(format!("{what} {i} is missing"));
    let info = info.ok_or_else(missing)?;
    let dynamic = || Rejection::DynamicShape { tensor: info.name().to_owned() };
    Ok(WgpuOperand { shape: info.shape().ok_or_else(dynamic)?, ty: info.ty(), info })
}

/// A tensor that a dispatch reads or writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WgpuTensor {
    /// Input of the node.
    Input(usize),
    /// Output of the node.
    Output(usize),
    /// One of the plan's temporaries.
    Temporary(usize),
}

/// The plan of a node: the shapes of its outputs, temporaries, and dispatches in execution order.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct WgpuPlan {
    pub(crate) outputs: Vec<Shape>,
    pub(crate) temporaries: Vec<Shape>,
    pub(crate) dispatches: Vec<WgpuDispatch>,
}

impl WgpuPlan {
    /// Creates a plan whose shaders write outputs of these shapes. A node whose outputs have other shapes is rejected.
    pub fn new(outputs: impl IntoIterator<Item = impl Into<Shape>>) -> Self {
        let outputs = outputs.into_iter().map(Into::into).collect();
        WgpuPlan { outputs, temporaries: Vec::new(), dispatches: Vec::new() }
    }

    /// Adds a FLOAT32 tensor between dispatches; the first is `WgpuTensor::Temporary(0)`. Temporaries share memory
    /// with values that are not needed at the same time.
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
#[non_exhaustive]
pub struct WgpuDispatch {
    pub(crate) shader: usize,
    pub(crate) reads: Vec<WgpuTensor>,
    pub(crate) writes: WgpuTensor,
    pub(crate) uniform: Vec<u8>,
    pub(crate) workgroups: [u32; 3],
}

impl WgpuDispatch {
    /// Creates a dispatch of the shader with index `shader` in the op's list, of one workgroup. `reads` are bound to
    /// its `read` bindings in the order of their numbers, `writes` to its `read_write` binding.
    pub fn new(shader: usize, reads: impl IntoIterator<Item = WgpuTensor>, writes: WgpuTensor) -> Self {
        let (reads, uniform) = (reads.into_iter().collect(), Vec::new());
        WgpuDispatch { shader, reads, writes, uniform, workgroups: [1, 1, 1] }
    }

    /// Sets the contents of the uniform block, in WGSL's layout.
    #[must_use]
    pub fn uniform(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.uniform = bytes.into();
        self
    }

    /// Sets the number of workgroups in x, y and z.
    #[must_use]
    pub fn workgroups(mut self, workgroups: [u32; 3]) -> Self {
        self.workgroups = workgroups;
        self
    }
}

/// A dispatch as a step of the graph.
#[derive(Debug, Clone)]
pub(crate) struct Spec {
    pub(crate) shader: Arc<Shader>,
    pub(crate) uniform: Vec<u8>,
    pub(crate) workgroups: [u32; 3],
}

impl PartialEq for Spec {
    fn eq(&self, other: &Self) -> bool {
        let parts = |spec: &Self| (spec.uniform.clone(), spec.workgroups);
        Arc::ptr_eq(&self.shader, &other.shader) && parts(self) == parts(other)
    }
}

impl delegraph_shaders::Shader for Spec {
    fn kernel(&self, caps: &Caps) -> Result<Kernel, ShaderError> {
        let max = caps.max_workgroups_per_dimension;
        if self.workgroups.iter().any(|&n| n > max) {
            let why = format!("{:?} workgroups; {max} per dimension are supported", self.workgroups);
            return Err(ShaderError::Unsupported { kernel: NAME, why });
        }
        // The source is its own key.
        let (key, bindings) = (format!("{NAME} {}", self.shader.wgsl), self.shader.bindings.clone());
        let source = self.shader.wgsl.as_str();
        let variant = Variant::from_text(NAME, key, source, bindings, Features::default());
        // The number of iterations of the application's shader is unknown, and not checked.
        Ok(Kernel { variant, uniform: self.uniform.clone(), dispatch: self.workgroups, iterations: 0 })
    }

    /// The application chooses the source for each size.
    fn other_sizes(&self, _: &Caps) -> OtherSizes {
        OtherSizes::SAME
    }
}
