//! A crate of kernels for custom ops. An application that links it calls [`register`]; any other loads the library:
//!
//! ```text
//! cargo build --release -p delegraph-example-kernels
//! delegraph run assets/custom/sin.tflite --ops plugin:target/release/libdelegraph_example_kernels.so
//! ```

use delegraph_core::kernel::{Persistent, Temporary};
use delegraph_core::{
    Error, InvokeContext, Kernel, MutableOpResolver, PrepareContext, Registration, Result, TensorType, ensure,
};

delegraph_delegate_api::export_kernels!(register);

/// Registers every kernel of this crate.
pub fn register(resolver: &mut MutableOpResolver) {
    resolver.add_custom("Sin", Registration::new(|_| Ok(Elementwise(f32::sin))), 1);
    resolver.add_custom("Atan", Registration::new(|_| Ok(Elementwise(f32::atan))), 1);
    let moving = Registration::new(|cx| {
        let options = cx.options()?;
        let window: usize = options.get("window")?;
        ensure!(window > 0, "option \"window\" is 0, wanted at least 1");
        Ok(MovingAverage { window, scale: options.get_or("scale", 1.0)?, memory: None })
    });
    // The kernel has state: its nodes run exactly as often as the model states, and in order.
    resolver.add_custom("MovingAverage", moving.with_side_effects(), 1..=2);
}

/// A function of every element.
struct Elementwise(fn(f32) -> f32);

impl Kernel for Elementwise {
    fn prepare(&mut self, cx: &mut PrepareContext<'_>) -> Result<()> {
        cx.ensure_counts(1, 1)?;
        cx.output(0)?.ensure_type(&[TensorType::Float32])?;
        let shape = cx.input(0)?.ensure_type(&[TensorType::Float32])?.shape().clone();
        cx.set_output_shape(0, shape)
    }

    fn invoke(&mut self, cx: &mut InvokeContext<'_>) -> Result<()> {
        let (input, output) = (cx.input::<f32>(0)?, cx.output::<f32>(0)?);
        output.iter_mut().zip(input).for_each(|(y, x)| *y = (self.0)(*x));
        Ok(())
    }
}

/// The average of the last `window` inputs, each a vector of any length, times `scale`. Before that, the average of all
/// inputs so far.
struct MovingAverage {
    window: usize,
    scale: f32,
    memory: Option<Memory>,
}

/// The memory that `prepare` requests.
struct Memory {
    /// The last `window` inputs, a ring buffer.
    seen: Persistent,
    /// The number of inputs so far.
    count: Persistent,
    sum: Temporary,
}

impl Kernel for MovingAverage {
    fn prepare(&mut self, cx: &mut PrepareContext<'_>) -> Result<()> {
        cx.ensure_counts(1, 1)?;
        let [n] = cx.input(0)?.ensure_type(&[TensorType::Float32])?.dims()?;
        let all = n.checked_mul(self.window);
        let all = all.ok_or_else(|| Error::OutOfMemory(format!("{} windows of {n}", self.window)))?;
        self.memory = Some(Memory {
            seen: cx.persistent_of::<f32>(all)?,
            count: cx.persistent_of::<u64>(1)?,
            sum: cx.temporary_of::<f64>(n)?,
        });
        cx.set_output_shape(0, [n])
    }

    fn invoke(&mut self, cx: &mut InvokeContext<'_>) -> Result<()> {
        let Some(memory) = &self.memory else { return Err(Error::State("not prepared".into())) };
        let (input, output) = (cx.input::<f32>(0)?, cx.output::<f32>(0)?);
        let (seen, count) = (cx.persistent::<f32>(memory.seen)?, cx.persistent::<u64>(memory.count)?);
        let sum = cx.temporary::<f64>(memory.sum)?;
        if input.is_empty() {
            return Ok(());
        }
        let window = self.window as u64;
        let place = (count[0] % window) as usize;
        count[0] += 1;
        seen[place * input.len()..][..input.len()].copy_from_slice(input);
        let filled = count[0].min(window) as usize;
        sum.fill(0.0);
        for one in seen.chunks_exact(input.len()).take(filled) {
            sum.iter_mut().zip(one).for_each(|(s, x)| *s += f64::from(*x));
        }
        let factor = f64::from(self.scale) / filled as f64;
        output.iter_mut().zip(sum).for_each(|(y, s)| *y = (*s * factor) as f32);
        Ok(())
    }
}
