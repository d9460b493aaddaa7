//! The custom ops MaxPoolingWithArgmax2D and MaxUnpooling2D.

use crate::shape::elements;
use crate::template::Template;
use crate::walk::Walk;
use crate::{Binding, Caps, Features, Kernel, ShaderError};

/// How windows lie, along height and width.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Windows {
    /// Size of a window.
    pub window: [u32; 2],
    /// From one window to the next.
    pub stride: [u32; 2],
    /// Rows above and columns left of the larger tensor.
    pub padding: [i32; 2],
}

impl Windows {
    /// Whether positions of windows fit signed integers.
    fn fits(&self, large: [u32; 4], small: [u32; 4]) -> bool {
        let along = |d: usize| {
            let end = u64::from(self.stride[d]) * u64::from(small[d + 1]) + u64::from(self.window[d]);
            self.window[d] > 0
                && self.stride[d] > 0
                && end + u64::from(large[d + 1]) + u64::from(self.padding[d].unsigned_abs()) < 1 << 30
        };
        let area = u64::from(self.window[0]) * u64::from(self.window[1]);
        along(0) && along(1) && area < 1 << 24 && (large[0], large[3]) == (small[0], small[3])
    }

    fn fields(&self) -> impl Iterator<Item = u32> {
        self.window.into_iter().chain(self.stride)
    }
}

/// The largest element of each window, or where in it that is: its number in the window, with a fraction of 0.1.
///
/// Bindings: `Input(0)`, `Output`, `Uniform`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pool {
    /// `[batch, height, width, channels]`
    pub input: [u32; 4],
    /// `[batch, height, width, channels]`
    pub output: [u32; 4],
    /// How they lie.
    pub windows: Windows,
    /// What the largest element is limited to; none for the places.
    pub bounds: Option<[f32; 2]>,
}

impl Pool {
    /// The kernel.
    ///
    /// # Errors
    /// When the shapes contradict each other or when a tensor is larger than one dispatch reaches.
    pub fn kernel(&self, caps: &Caps) -> Result<Kernel, ShaderError> {
        const NAME: &str = "max_pooling";
        let Self { input, output, windows, .. } = self;
        let empty = elements(NAME, input)? == 0 || elements(NAME, output)? == 0;
        if empty || !windows.fits(*input, *output) {
            return Err(ShaderError::invalid(NAME, format!("{self:?}")));
        }
        let walk = Walk::new(NAME, caps, output)?;
        let (key, wgsl) = walk
            .apply(Template::new(NAME, include_str!("wgsl/max_pooling.wgsl")))
            .number("UNIFORM", 2)
            .flag("PLACES", self.bounds.is_none())
            .render()?;
        let uniform = walk
            .dimensions(walk.uniform(), |uniform, _| uniform)
            .u32s([input[1], input[2]])
            .u32s(windows.fields())
            .i32s(windows.padding)
            .f32s(self.bounds.unwrap_or_default());
        Ok(Kernel {
            name: NAME,
            key,
            wgsl,
            entry: "main",
            bindings: vec![Binding::Input(0), Binding::Output, Binding::Uniform],
            uniform: uniform.finish(),
            dispatch: walk.dispatch(caps)?,
            features: Features::default(),
        })
    }
}

/// Elements in the places of their windows that they belong in, zeros elsewhere. A place that lies outside of its
/// window is left out; where windows overlap, the last counts.
///
/// Bindings: `Input(0)` (the elements), `Input(1)` (their places), `Output`, `Uniform`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Unpool {
    /// `[batch, height, width, channels]`
    pub input: [u32; 4],
    /// `[batch, height, width, channels]`
    pub output: [u32; 4],
    /// How they lie.
    pub windows: Windows,
}

impl Unpool {
    /// The kernel.
    ///
    /// # Errors
    /// When the shapes contradict each other or when a tensor is larger than one dispatch reaches.
    pub fn kernel(&self, caps: &Caps) -> Result<Kernel, ShaderError> {
        const NAME: &str = "max_unpooling";
        let Self { input, output, windows } = self;
        let empty = elements(NAME, input)? == 0 || elements(NAME, output)? == 0;
        if empty || !windows.fits(*output, *input) {
            return Err(ShaderError::invalid(NAME, format!("{self:?}")));
        }
        let walk = Walk::new(NAME, caps, output)?;
        let (key, wgsl) = walk
            .apply(Template::new(NAME, include_str!("wgsl/max_unpooling.wgsl")))
            .number("UNIFORM", 3)
            .render()?;
        let uniform = walk
            .dimensions(walk.uniform(), |uniform, _| uniform)
            .u32s([input[1], input[2]])
            .u32s(windows.fields())
            .i32s(windows.padding);
        Ok(Kernel {
            name: NAME,
            key,
            wgsl,
            entry: "main",
            bindings: vec![Binding::Input(0), Binding::Input(1), Binding::Output, Binding::Uniform],
            uniform: uniform.finish(),
            dispatch: walk.dispatch(caps)?,
            features: Features::default(),
        })
    }
}
