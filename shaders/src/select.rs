//! SELECT and SELECT_V2.

use crate::shape::{MAX_RANK, Nest, broadcast_strides, elements};
use crate::template::Template;
use crate::walk::Walk;
use crate::{Binding, Caps, Features, Kernel, ShaderError};

const NAME: &str = "select";

/// `output = condition ? a : b`, with the operands broadcast to the output's shape; the condition is
/// [boolean](crate::Element::Bool), the rest are words.
///
/// Bindings: `Input(0)` (the condition), `Input(1)` (a), `Input(2)` (b), `Output`, `Uniform`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    /// Shape of the condition. Where a vector chooses rows, give it trailing extents of one.
    pub condition: Vec<u32>,
    /// Shape of what is taken where the condition holds.
    pub a: Vec<u32>,
    /// Shape of what is taken elsewhere.
    pub b: Vec<u32>,
    /// Shape of the output.
    pub output: Vec<u32>,
}

impl Spec {
    /// The kernel.
    ///
    /// # Errors
    /// When the shapes don't broadcast, and when more than six dimensions remain after merging those that
    /// broadcast alike.
    pub fn kernel(&self, caps: &Caps) -> Result<Kernel, ShaderError> {
        let strides = |shape: &[u32]| -> Result<Vec<i64>, ShaderError> {
            elements(NAME, shape)?;
            broadcast_strides(shape, &self.output)
                .map(|strides| strides.into_iter().map(i64::from).collect())
                .ok_or_else(|| {
                    ShaderError::invalid(NAME, format!("{shape:?} doesn't broadcast to {:?}", self.output))
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
            return Err(ShaderError::unsupported(NAME, format!("broadcasting in {rank} dimensions")));
        }
        let walk = Walk::new(NAME, caps, &nest.extents)?;
        let [repeats_0, repeats_1, repeats_2] = nest.strides.each_ref().map(|s| s.last() == Some(&0));
        let (key, wgsl) = walk
            .apply(Template::new(NAME, include_str!("wgsl/select.wgsl")))
            .number("UNIFORM", 4)
            .flag("VEC4", vec4)
            .flag("REPEATS_0", repeats_0)
            .flag("REPEATS_1", repeats_1)
            .flag("REPEATS_2", repeats_2)
            .render()?;
        let uniform = walk.dimensions(walk.uniform(), |uniform, d| uniform.u32s(nest.unsigned_strides(d)));
        Ok(Kernel {
            name: NAME,
            key,
            wgsl,
            entry: "main",
            bindings: vec![
                Binding::Input(0),
                Binding::Input(1),
                Binding::Input(2),
                Binding::Output,
                Binding::Uniform,
            ],
            uniform: uniform.finish(),
            dispatch: walk.dispatch(caps)?,
            features: Features::default(),
        })
    }
}
