//! MEAN, SUM, REDUCE_MAX, REDUCE_MIN, REDUCE_PROD, REDUCE_ANY and REDUCE_ALL.

use crate::element::Element;
use crate::epilogue::Activation;
use crate::kernel::linear_dispatch;
use crate::shape::{MAX_RANK, dense_strides, elements};
use crate::template::Template;
use crate::uniform::Uniform;
use crate::{Binding, Caps, Features, Kernel, ShaderError};

const NAME: &str = "reduce";

/// What happens to the elements that become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reduce {
    /// Sum.
    Sum,
    /// Sum over count; floats only.
    Mean,
    /// Largest; of booleans: any.
    Max,
    /// Smallest; of booleans: all.
    Min,
    /// Product.
    Prod,
}

/// Combines the elements along some dimensions.
///
/// Bindings: `Input(0)`, `Output`, `Uniform`.
#[derive(Clone, Debug, PartialEq)]
pub struct Spec {
    /// How.
    pub op: Reduce,
    /// What input and output hold.
    pub element: Element,
    /// Shape of the input.
    pub input: Vec<u32>,
    /// Dimensions to reduce. The output has those left, or ones in their places: the same to a kernel.
    pub axes: Vec<usize>,
    /// Applied to a float result. Not [`Activation::Prelu`].
    pub activation: Activation,
}

/// A dimension, or neighbours merged into one, with its stride in the input.
#[derive(Clone, Copy)]
struct Dimension {
    extent: u32,
    stride: u32,
}

/// The work of one kernel.
struct Plan {
    kept: Vec<Dimension>,
    reduced: Vec<Dimension>,
    /// Four neighbouring outputs at a time.
    vec4: bool,
    /// Four neighbours that become one at a time.
    fold: bool,
    /// The innermost dimension is reduced.
    along: bool,
}

impl Spec {
    /// The kernel.
    ///
    /// # Errors
    /// When there is nothing to reduce or an axis isn't there, when the element doesn't go with the
    /// reduction, and when more than six dimensions remain after merging neighbours.
    pub fn kernel(&self, caps: &Caps) -> Result<Kernel, ShaderError> {
        let activates = self.activation != Activation::None || self.op == Reduce::Mean;
        let float = self.element == Element::F32;
        if activates && (!float || self.activation == Activation::Prelu) {
            return Err(ShaderError::unsupported(NAME, format!("{self:?}")));
        }
        let plan = self.plan()?;
        let total = |dimensions: &[Dimension]| {
            elements(NAME, &dimensions.iter().map(|d| d.extent).collect::<Vec<_>>())
        };
        let (count, reduced) = (total(&plan.kept)?, total(&plan.reduced)?);
        let split = split(caps, count, reduced);
        let workgroup = match split {
            1 if caps.software => 16,
            1 => 64,
            _ => 256,
        };
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
        let (key, wgsl) = Template::new(NAME, include_str!("wgsl/reduce.wgsl"))
            .number("UNIFORM", 2)
            .number("WORKGROUP", workgroup)
            .number("SPLIT", split)
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
            .text("ACTIVATION", self.activation.name(), self.activation.wgsl("act"))
            .render()?;
        let size = reduced * if plan.fold { 4 } else { 1 };
        let scale = if self.op == Reduce::Mean { (1.0 / f64::from(size)) as f32 } else { 1.0 };
        let dimensions = plan.kept.iter().rev().chain(plan.reduced.iter().rev());
        let uniform = dimensions.fold(
            Uniform::default().u32s([count, reduced]).f32(scale).f32s(self.activation.params()),
            |uniform, d| uniform.u32s([d.extent, d.stride]),
        );
        Ok(Kernel {
            name: NAME,
            key,
            wgsl,
            entry: "main",
            bindings: vec![Binding::Input(0), Binding::Output, Binding::Uniform],
            uniform: uniform.finish(),
            dispatch: linear_dispatch(NAME, caps, u64::from(count), u64::from(workgroup / split))?,
            features: Features::default(),
        })
    }

    fn plan(&self) -> Result<Plan, ShaderError> {
        let (mut kept, mut reduced, along) = dimensions(NAME, &self.input, &self.axes)?;
        // The innermost dimension has a stride of one; all others are multiples of its extent.
        let inner = if along { reduced.last_mut() } else { kept.last_mut() };
        let fours = inner.as_ref().is_some_and(|d| d.stride == 1 && d.extent.is_multiple_of(4));
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

/// Dimensions that are kept and those that are reduced, merged where they are neighbours, from the outermost in; whether
/// the innermost is reduced.
fn dimensions(
    kernel: &'static str,
    input: &[u32],
    axes: &[usize],
) -> Result<(Vec<Dimension>, Vec<Dimension>, bool), ShaderError> {
    if elements(kernel, input)? == 0 || axes.iter().any(|axis| *axis >= input.len()) {
        return Err(ShaderError::invalid(kernel, format!("axes {axes:?} of {input:?}")));
    }
    let (mut kept, mut reduced): (Vec<Dimension>, Vec<Dimension>) = (Vec::new(), Vec::new());
    let mut last = None;
    for (d, (extent, stride)) in input.iter().zip(dense_strides(input)).enumerate() {
        if *extent == 1 {
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
        let text = format!("axes {axes:?} of {input:?}: over six dimensions");
        return Err(ShaderError::unsupported(kernel, text));
    }
    Ok((kept, reduced, last == Some(true)))
}

/// Extents and strides of the dimensions that are kept, and of those that are reduced.
pub(crate) fn kept_and_reduced(
    kernel: &'static str,
    input: &[u32],
    axes: &[usize],
) -> Result<[Vec<[u32; 2]>; 2], ShaderError> {
    let (kept, reduced, _) = dimensions(kernel, input, axes)?;
    Ok([kept, reduced].map(|list| list.iter().map(|d| [d.extent, d.stride]).collect()))
}

/// How many invocations share an output: one where there are outputs enough to keep the device busy.
pub(crate) fn split(caps: &Caps, outputs: u32, reduced: u32) -> u32 {
    let enough = if caps.software { 16 } else { 8192 };
    if outputs >= enough || reduced < 64 { 1 } else { 32 }
}
