//! SELECT and SELECT_V2.

use crate::binding::bindings;
use crate::shape::{MAX_RANK, NEST, Nest, broadcast_strides, elements};
use crate::template::Template;
use crate::walk::Walk;
use crate::{Caps, Kernel, OtherSizes, Shader, ShaderError};

const NAME: &str = "select";

/// `output = condition ? a : b`, with the operands broadcast to the output's shape; the condition is
/// [boolean](crate::Element::Bool), the rest are words.
///
/// Bindings: `Input(0)` (the condition), `Input(1)` (a), `Input(2)` (b), `Output`, `Uniform`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    /// Shape of the condition. A vector that chooses rows has trailing extents of one.
    pub condition: Vec<u32>,
    /// Shape of the operand that is chosen where the condition is true.
    pub a: Vec<u32>,
    /// Shape of the other operand.
    pub b: Vec<u32>,
    /// Shape of the output.
    pub output: Vec<u32>,
}

impl Shader for Spec {
    /// # Errors
    /// For shapes that do not broadcast, more than six dimensions after merging those that broadcast alike, and a
    /// tensor larger than one dispatch reaches.
    fn kernel(&self, caps: &Caps) -> Result<Kernel, ShaderError> {
        let strides = |shape: &[u32]| -> Result<Vec<i64>, ShaderError> {
            elements(NAME, shape)?;
            broadcast_strides(shape, &self.output)
                .map(|strides| strides.into_iter().map(i64::from).collect())
                .ok_or_else(|| {
                    ShaderError::invalid(NAME, format!("{shape:?} does not broadcast to {:?}", self.output))
                })
        };
        elements(NAME, &self.output)?;
        let mut nest = Nest {
            extents: self.output.clone(),
            strides: [strides(&self.condition)?, strides(&self.a)?, strides(&self.b)?],
        }
        .collapse();
        let vec4 = nest.split_vec4();
        let rank = nest.extents.len();
        if rank > MAX_RANK {
            return Err(ShaderError::unsupported(
                NAME,
                format!("broadcasting in {rank} dimensions; {MAX_RANK} are supported"),
            ));
        }
        let walk = Walk::new(NAME, caps, &nest.extents)?;
        let [repeats_0, repeats_1, repeats_2] = nest.strides.each_ref().map(|s| s.last() == Some(&0));
        let template = walk
            .apply(Template::new(NAME, include_str!("wgsl/select.wgsl")))
            .flag("VEC4", vec4)
            .flag("REPEATS_0", repeats_0)
            .flag("REPEATS_1", repeats_1)
            .flag("REPEATS_2", repeats_2);
        let uniform = walk.dimensions(walk.uniform(), |uniform, d| uniform.u32s(nest.unsigned_strides(d)));
        Ok(Kernel {
            variant: template.variant(NAME, bindings(3)),
            uniform: uniform.finish(),
            dispatch: walk.dispatch(caps)?,
            iterations: walk.iterations(),
        })
    }

    fn other_sizes(&self, _: &Caps) -> OtherSizes {
        OtherSizes::thresholds(&NEST)
    }
}
