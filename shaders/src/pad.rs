//! PAD, PADV2 and MIRROR_PAD.

use crate::binding::bindings;
use crate::shape::{MAX_RANK, dense_strides, elements};
use crate::template::Template;
use crate::walk::Walk;
use crate::{Caps, Kernel, OtherSizes, Shader, ShaderError, Threshold};

const NAME: &str = "pad";

/// The elements outside of the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fill {
    /// A word, such as the [bits](f32::to_bits) of a float.
    Value(u32),
    /// The mirror image without the border: `c b | a b c | b a`.
    Reflect,
    /// The mirror image with the border: `b a | a b c | c b`.
    Symmetric,
}

/// The input with `padding[d] = [before, after]` added along each dimension, for elements of 32 bits.
///
/// Bindings: `Input(0)`, `Output`, `Uniform`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    /// Shape of the input.
    pub input: Vec<u32>,
    /// Elements before and after, per dimension.
    pub padding: Vec<[u32; 2]>,
    /// The elements that are added.
    pub fill: Fill,
}

/// A dimension with its padding.
#[derive(Clone, Copy)]
struct Side {
    input: u32,
    before: u32,
    output: u32,
}

impl Spec {
    /// Returns the dimensions, merged where the padding allows that.
    fn sides(&self) -> Result<Vec<Side>, ShaderError> {
        let bad = || ShaderError::contradiction(NAME, self);
        elements(NAME, &self.input)?;
        if self.input.len() != self.padding.len() {
            return Err(bad());
        }
        let reach = |n: u32| match self.fill {
            Fill::Value(_) => u32::MAX,
            Fill::Reflect => n.saturating_sub(1),
            Fill::Symmetric => n,
        };
        let mut sides: Vec<Side> = Vec::new();
        let mut shape = Vec::new();
        for (n, [before, after]) in self.input.iter().zip(&self.padding) {
            if (*before).max(*after) > reach(*n) {
                return Err(bad());
            }
            let output = n.checked_add(*before).and_then(|n| n.checked_add(*after)).ok_or_else(bad)?;
            shape.push(output);
            elements(NAME, &shape)?;
            let side = Side { input: *n, before: *before, output };
            // A dimension without padding is merged into the next outer one, in units of whole rows.
            match sides.last_mut() {
                Some(outer)
                    if side.input == side.output
                        && (matches!(self.fill, Fill::Value(_)) || outer.input == outer.output) =>
                {
                    outer.input = outer.input.saturating_mul(*n);
                    outer.before = outer.before.saturating_mul(*n);
                    outer.output = outer.output.saturating_mul(*n);
                }
                _ => sides.push(side),
            }
        }
        if sides.is_empty() {
            sides.push(Side { input: 1, before: 0, output: 1 });
        }
        Ok(sides)
    }
}

impl Shader for Spec {
    /// # Errors
    /// For a padding of another rank, a mirror image wider than the input, more than six dimensions after merging those
    /// without padding, and a tensor larger than one dispatch reaches.
    fn kernel(&self, caps: &Caps) -> Result<Kernel, ShaderError> {
        let mut sides = self.sides()?;
        let mirror = !matches!(self.fill, Fill::Value(_));
        let vec4 = split_vec4(&mut sides, mirror);
        let rank = sides.len();
        if rank > MAX_RANK {
            return Err(ShaderError::unsupported(
                NAME,
                format!("{rank} padded dimensions; {MAX_RANK} are supported"),
            ));
        }
        let (value, border) = match self.fill {
            Fill::Value(value) => (value, 0),
            Fill::Reflect => (0, 0),
            Fill::Symmetric => (0, 1),
        };
        let outputs: Vec<u32> = sides.iter().map(|side| side.output).collect();
        let walk = Walk::new(NAME, caps, &outputs)?;
        let template = walk
            .apply(Template::new(NAME, include_str!("wgsl/pad.wgsl")))
            .flag("VEC4", vec4)
            .flag("MIRROR", mirror);
        let strides = dense_strides(&sides.iter().map(|side| side.input).collect::<Vec<_>>());
        let uniform = walk.dimensions(walk.uniform().u32(value).i32(border), |uniform, d| {
            match (sides.get(d), strides.get(d)) {
                (Some(side), Some(stride)) => uniform.u32s([side.input, side.before, *stride]),
                _ => uniform,
            }
        });
        Ok(Kernel {
            variant: template.variant(NAME, bindings(1)),
            uniform: uniform.finish(),
            dispatch: walk.dispatch(caps)?,
            iterations: walk.iterations(),
        })
    }

    fn other_sizes(&self, _: &Caps) -> OtherSizes {
        OtherSizes::thresholds(&[Threshold::VECTORS])
    }
}

/// Divides the innermost dimension into vectors of four, if its extent and padding are multiples of four; returns
/// whether it did. A mirror image reverses the elements of vectors, so it must not pad that dimension.
fn split_vec4(sides: &mut [Side], mirror: bool) -> bool {
    let Some(inner) = sides.last_mut() else { return false };
    let fours = [inner.input, inner.before, inner.output].iter().all(|n| Threshold::VECTORS.holds(*n));
    if !fours || (mirror && inner.input != inner.output) {
        return false;
    }
    *inner = Side { input: inner.input / 4, before: inner.before / 4, output: inner.output / 4 };
    true
}
