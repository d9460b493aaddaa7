//! MEAN, SUM, REDUCE_MAX, REDUCE_MIN, REDUCE_PROD, REDUCE_ANY and REDUCE_ALL.

use crate::binding::bindings;
use crate::element::Element;
use crate::epilogue::Activation;
use crate::kernel::{linear_dispatch, looped};
use crate::shape::{MAX_RANK, NEST, dense_strides, elements};
use crate::template::Template;
use crate::uniform::Uniform;
use crate::{Caps, Kernel, OtherSizes, Shader, ShaderError, Threshold};

const NAME: &str = "reduce";

/// The operation that combines elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reduce {
    /// Sum.
    Sum,
    /// Sum over count; floats only.
    Mean,
    /// Maximum; for booleans: any.
    Max,
    /// Minimum; for booleans: all.
    Min,
    /// Product.
    Prod,
}

/// Combines the elements along some dimensions.
///
/// Bindings: `Input(0)`, `Output`, `Uniform`.
#[derive(Clone, Debug, PartialEq)]
pub struct Spec {
    /// The operation.
    pub op: Reduce,
    /// Element type of input and output.
    pub element: Element,
    /// Shape of the input.
    pub input: Vec<u32>,
    /// Dimensions to reduce. Whether the output drops them or keeps them with an extent of one makes no difference.
    pub axes: Vec<usize>,
    /// Applied to a float result. Not [`Activation::Prelu`].
    pub activation: Activation,
}

/// A dimension, or several merged neighbours, with its stride in the input.
#[derive(Clone, Copy)]
struct Dimension {
    extent: u32,
    stride: u32,
}

/// The loop nest of a kernel.
struct Plan {
    kept: Vec<Dimension>,
    reduced: Vec<Dimension>,
    /// Whether an invocation computes vectors of four outputs.
    vec4: bool,
    /// Whether vectors of four elements are combined into one.
    fold: bool,
    /// Whether the innermost dimension is reduced.
    along: bool,
}

/// The number of invocations of a workgroup that share an output.
#[derive(Clone, Copy)]
pub(crate) struct Split {
    invocations: u32,
    workgroup: u32,
}

impl Split {
    /// Number of reduced elements from which sharing is faster.
    const MIN_SHARED: Threshold = Threshold::AtLeast(64);

    /// Returns the number of outputs that occupy the device with one invocation each.
    const fn enough_outputs(caps: &Caps) -> Threshold {
        Threshold::AtLeast(if caps.software { 16 } else { 8192 })
    }

    /// Number of reduced elements from which a whole workgroup shares an output, if there are few outputs. Measured on
    /// hardware; a CPU is occupied by fewer invocations.
    const MIN_WHOLE: Threshold = Threshold::AtLeast(1024);
    /// Number of outputs that occupy the device with some tens of invocations each.
    const MANY_OUTPUTS: Threshold = Threshold::AtLeast(512);

    /// Returns the thresholds of [`Split::new`].
    pub(crate) fn thresholds(caps: &Caps) -> Vec<Threshold> {
        let mut thresholds = vec![Self::MIN_SHARED, Self::enough_outputs(caps)];
        if !caps.software {
            thresholds.extend([Self::MIN_WHOLE, Self::MANY_OUTPUTS]);
        }
        thresholds
    }

    /// Creates the split for `outputs` outputs, each of `reduced` elements.
    pub(crate) fn new(caps: &Caps, outputs: u32, reduced: u32) -> Self {
        let shared = Self::MIN_SHARED.holds(reduced) && !Self::enough_outputs(caps).holds(outputs);
        let whole = Self::MIN_WHOLE.holds(reduced) && !Self::MANY_OUTPUTS.holds(outputs);
        match shared {
            true if whole && !caps.software => Self { invocations: 256, workgroup: 256 },
            true => Self { invocations: 32, workgroup: 256 },
            false => Self { invocations: 1, workgroup: if caps.software { 16 } else { 64 } },
        }
    }

    pub(crate) fn apply(self, template: Template) -> Template {
        template.number("WORKGROUP", self.workgroup).number("SPLIT", self.invocations)
    }

    /// Returns the iterations of an invocation's loop over `reduced` elements.
    pub(crate) fn iterations(self, reduced: u32) -> u64 {
        looped(reduced.div_ceil(self.invocations), 0) + looped(self.invocations.ilog2(), 0)
    }

    /// Returns the outputs of a workgroup.
    pub(crate) fn outputs(self) -> u64 {
        u64::from(self.workgroup / self.invocations)
    }
}

/// The number of invocations that share a row, in kernels that compute a row of outputs from a row of inputs.
#[derive(Clone, Copy)]
pub(crate) struct RowSplit {
    invocations: u32,
    workgroup: u32,
}

impl RowSplit {
    /// Elements (or vectors) of a row from which neighbouring invocations share it, so that its reads are coalesced.
    const LONG: Threshold = Threshold::AtLeast(32);

    /// Returns the thresholds of [`RowSplit::new`].
    pub(crate) fn thresholds(caps: &Caps) -> &'static [Threshold] {
        // CPUs are fastest with a row per invocation.
        if caps.software { &[] } else { &[Self::LONG] }
    }

    /// Creates the split for rows of `depth` elements or vectors.
    pub(crate) fn new(caps: &Caps, depth: u32) -> Self {
        match Self::thresholds(caps).iter().any(|long| long.holds(depth)) {
            true => Self { invocations: 64, workgroup: 64 },
            false => Self { invocations: 1, workgroup: if caps.software { 8 } else { 64 } },
        }
    }

    pub(crate) fn apply(self, template: Template) -> Template {
        template.number("WORKGROUP", self.workgroup).number("SPLIT", self.invocations).flag("ALONG", true)
    }

    /// Returns the iterations of an invocation's loops, each over a row of `depth` elements or vectors.
    pub(crate) fn iterations(self, loops: u32, depth: u32) -> u64 {
        let each = looped(depth.div_ceil(self.invocations), 0) + looped(self.invocations.ilog2(), 0);
        u64::from(loops) * each
    }

    /// Returns the rows of a workgroup.
    pub(crate) fn rows(self) -> u64 {
        u64::from(self.workgroup / self.invocations)
    }
}

impl Shader for Spec {
    /// # Errors
    /// For an empty input or a missing axis, a mean or an activation of elements that are not floats,
    /// [`Activation::Prelu`], more than seven dimensions after merging neighbours, and a tensor larger than one
    /// dispatch reaches.
    fn kernel(&self, caps: &Caps) -> Result<Kernel, ShaderError> {
        let activates = self.activation != Activation::None || self.op == Reduce::Mean;
        let float = self.element == Element::F32;
        if activates && (!float || self.activation == Activation::Prelu) {
            let why = format!(
                "{:?} of {:?} with activation {:?}; \
                means and activations other than Prelu are supported for F32 only",
                self.op, self.element, self.activation
            );
            return Err(ShaderError::unsupported(NAME, why));
        }
        let plan = self.plan()?;
        let total = |dimensions: &[Dimension]| {
            elements(NAME, &dimensions.iter().map(|d| d.extent).collect::<Vec<_>>())
        };
        let (count, reduced) = (total(&plan.kept)?, total(&plan.reduced)?);
        let split = Split::new(caps, count, reduced);
        let (short, combine, folded) = match self.op {
            Reduce::Sum | Reduce::Mean => ("sum", "x + y", "v.x + v.y + v.z + v.w"),
            Reduce::Max => ("max", "max(x, y)", "max(max(v.x, v.y), max(v.z, v.w))"),
            Reduce::Min => ("min", "min(x, y)", "min(min(v.x, v.y), min(v.z, v.w))"),
            Reduce::Prod => ("prod", "x * y", "v.x * v.y * v.z * v.w"),
        };
        let start = match self.op {
            Reduce::Sum | Reduce::Mean => "0",
            Reduce::Prod => "1",
            Reduce::Max | Reduce::Min => "input[base]",
        };
        let template = split
            .apply(Template::new(NAME, include_str!("wgsl/reduce.wgsl")))
            .number("KEPT", u32::try_from(plan.kept.len()).unwrap_or(u32::MAX))
            .number("REDUCED", u32::try_from(plan.reduced.len()).unwrap_or(u32::MAX))
            .flag("VEC4", plan.vec4)
            .flag("FOLD", plan.fold)
            .flag("ALONG", plan.along)
            .flag("ACTIVATES", activates)
            .text("ELEMENT", self.element.wgsl(), self.element.wgsl())
            .text("COMBINE", short, combine)
            .text("FOLDED", if plan.fold { short } else { "same" }, if plan.fold { folded } else { "v" })
            .text("START", short, start)
            .text("ACTIVATION", self.activation.name(), self.activation.wgsl("act"));
        let size = reduced * if plan.fold { 4 } else { 1 };
        let scale = if self.op == Reduce::Mean { (1.0 / f64::from(size)) as f32 } else { 1.0 };
        let dimensions = plan.kept.iter().rev().chain(plan.reduced.iter().rev());
        let uniform = dimensions.fold(
            Uniform::default().u32s([count, reduced]).f32(scale).f32s(self.activation.params()),
            |uniform, d| uniform.u32s([d.extent, d.stride]),
        );
        Ok(Kernel {
            variant: template.variant(NAME, bindings(1)),
            uniform: uniform.finish(),
            dispatch: linear_dispatch(NAME, caps, u64::from(count), split.outputs())?,
            iterations: split.iterations(reduced),
        })
    }

    fn other_sizes(&self, caps: &Caps) -> OtherSizes {
        OtherSizes::Thresholds(thresholds(caps))
    }
}

/// Returns the thresholds of all reductions.
pub(crate) fn thresholds(caps: &Caps) -> Vec<Threshold> {
    NEST.into_iter().chain(Split::thresholds(caps)).collect()
}

impl Spec {
    fn plan(&self) -> Result<Plan, ShaderError> {
        let (mut kept, mut reduced, along) = dimensions(NAME, &self.input, &self.axes)?;
        // The innermost dimension has a stride of one; all other strides are multiples of its extent.
        let inner = if along { reduced.last_mut() } else { kept.last_mut() };
        let fours = inner.as_ref().is_some_and(|d| d.stride == 1 && Threshold::VECTORS.holds(d.extent));
        if fours {
            if let Some(inner) = inner {
                inner.extent /= 4;
            }
            let outer = |d: &&mut Dimension| d.stride != 1;
            kept.iter_mut().chain(&mut reduced).filter(outer).for_each(|d| d.stride /= 4);
        }
        Ok(Plan { kept, reduced, vec4: fours && !along, fold: fours && along, along })
    }
}

/// Returns the dimensions that are kept and those that are reduced, with neighbours merged, from the outermost in; and
/// whether the innermost is reduced.
fn dimensions(
    kernel: &'static str,
    input: &[u32],
    axes: &[usize],
) -> Result<(Vec<Dimension>, Vec<Dimension>, bool), ShaderError> {
    if elements(kernel, input)? == 0 || axes.iter().any(|axis| *axis >= input.len()) {
        return Err(ShaderError::invalid(kernel, format!("axes {axes:?} of shape {input:?}")));
    }
    let (mut kept, mut reduced): (Vec<Dimension>, Vec<Dimension>) = (Vec::new(), Vec::new());
    let mut last = None;
    for (d, (extent, stride)) in input.iter().zip(dense_strides(input)).enumerate() {
        if !Threshold::SEVERAL.holds(*extent) {
            continue;
        }
        let is_reduced = axes.contains(&d);
        let list = if is_reduced { &mut reduced } else { &mut kept };
        match list.last_mut() {
            Some(outer) if last == Some(is_reduced) => {
                *outer = Dimension { extent: outer.extent.saturating_mul(*extent), stride };
            }
            _ => list.push(Dimension { extent: *extent, stride }),
        }
        last = Some(is_reduced);
    }
    for list in [&mut kept, &mut reduced] {
        if list.is_empty() {
            list.push(Dimension { extent: 1, stride: 0 });
        }
    }
    if kept.len() + reduced.len() > MAX_RANK + 1 {
        let rank = kept.len() + reduced.len();
        let why = format!("axes {axes:?} of {input:?}: {rank} dimensions; {} are supported", MAX_RANK + 1);
        return Err(ShaderError::unsupported(kernel, why));
    }
    Ok((kept, reduced, last == Some(true)))
}

/// Returns extents and strides of the dimensions that are kept, and of those that are reduced.
pub(crate) fn kept_and_reduced(
    kernel: &'static str,
    input: &[u32],
    axes: &[usize],
) -> Result<[Vec<[u32; 2]>; 2], ShaderError> {
    let (kept, reduced, _) = dimensions(kernel, input, axes)?;
    Ok([kept, reduced].map(|list| list.iter().map(|d| [d.extent, d.stride]).collect()))
}
