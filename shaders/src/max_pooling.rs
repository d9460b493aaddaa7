//! The custom ops MaxPoolingWithArgmax2D and MaxUnpooling2D.

use crate::binding::bindings;
use crate::kernel::nested;
use crate::shape::elements;
use crate::template::Template;
use crate::walk::Walk;
use crate::{Caps, Kernel, OtherSizes, Shader, ShaderError};

/// The layout of windows, along height and width.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Windows {
    /// Size of a window.
    pub window: [u32; 2],
    /// Distance between neighbouring windows.
    pub stride: [u32; 2],
    /// Rows above and columns left of the larger tensor.
    pub padding: [i32; 2],
}

impl Windows {
    /// Returns whether positions of windows fit signed integers, and the tensors have the same batch and channels.
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

/// The largest element of each window, or its position: the element's number in the window, plus 0.1.
///
/// Bindings: `Input(0)`, `Output`, `Uniform`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pool {
    /// `[batch, height, width, channels]`
    pub input: [u32; 4],
    /// `[batch, height, width, channels]`
    pub output: [u32; 4],
    /// Layout of the windows.
    pub windows: Windows,
    /// Limits of the largest element; `None` for positions.
    pub bounds: Option<[f32; 2]>,
}

impl Shader for Pool {
    /// # Errors
    /// For shapes that contradict each other, and for a tensor larger than one dispatch reaches.
    fn kernel(&self, caps: &Caps) -> Result<Kernel, ShaderError> {
        const NAME: &str = "max_pooling";
        let Self { input, output, windows, .. } = self;
        let empty = elements(NAME, input)? == 0 || elements(NAME, output)? == 0;
        if empty || !windows.fits(*input, *output) {
            return Err(ShaderError::contradiction(NAME, self));
        }
        let within = |d: usize| windows.window[d].min(input[d + 1]);
        let walk = Walk::new(NAME, caps, output)?.looping(caps, nested([within(0), within(1)]));
        let template = walk
            .apply(Template::new(NAME, include_str!("wgsl/max_pooling.wgsl")))
            .flag("PLACES", self.bounds.is_none());
        let uniform = walk
            .dimensions(walk.uniform(), |uniform, _| uniform)
            .u32s([input[1], input[2]])
            .u32s(windows.fields())
            .i32s(windows.padding)
            .f32s(self.bounds.unwrap_or_default());
        Ok(Kernel {
            variant: template.variant(NAME, bindings(1)),
            uniform: uniform.finish(),
            dispatch: walk.dispatch(caps)?,
            iterations: walk.iterations(),
        })
    }

    fn other_sizes(&self, _: &Caps) -> OtherSizes {
        OtherSizes::SAME
    }
}

/// Elements at their positions in windows, with zeros elsewhere. Positions outside of the window are ignored; where windows
/// overlap, the last one wins.
///
/// Bindings: `Input(0)` (the elements), `Input(1)` (their positions), `Output`, `Uniform`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Unpool {
    /// `[batch, height, width, channels]`
    pub input: [u32; 4],
    /// `[batch, height, width, channels]`
    pub output: [u32; 4],
    /// Layout of the windows.
    pub windows: Windows,
}

impl Shader for Unpool {
    /// # Errors
    /// For shapes that contradict each other, and for a tensor larger than one dispatch reaches.
    fn kernel(&self, caps: &Caps) -> Result<Kernel, ShaderError> {
        const NAME: &str = "max_unpooling";
        let Self { input, output, windows } = self;
        let empty = elements(NAME, input)? == 0 || elements(NAME, output)? == 0;
        if empty || !windows.fits(*output, *input) {
            return Err(ShaderError::contradiction(NAME, self));
        }
        // The windows that contain a pixel.
        let containing = |d: usize| (windows.window[d] / windows.stride[d] + 1).min(input[d + 1]);
        let loops = nested([containing(0), containing(1)]);
        let walk = Walk::new(NAME, caps, output)?.looping(caps, loops);
        let template = walk.apply(Template::new(NAME, include_str!("wgsl/max_unpooling.wgsl")));
        let uniform = walk
            .dimensions(walk.uniform(), |uniform, _| uniform)
            .u32s([input[1], input[2]])
            .u32s(windows.fields())
            .i32s(windows.padding);
        Ok(Kernel {
            variant: template.variant(NAME, bindings(2)),
            uniform: uniform.finish(),
            dispatch: walk.dispatch(caps)?,
            iterations: walk.iterations(),
        })
    }

    fn other_sizes(&self, _: &Caps) -> OtherSizes {
        OtherSizes::SAME
    }
}
