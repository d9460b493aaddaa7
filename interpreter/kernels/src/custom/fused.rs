//! Custom ops of this project, which fusion creates from normalizations and attention: see `crate::custom::names`.

use delegraph_core::error::counted;
use delegraph_core::flex::Map;
use delegraph_core::kernel::{InvokeContext, Kernel, PrepareContext, Temporary};
use delegraph_core::{MutableOpResolver, Registration, Result};

use super::{check_floats, dims, invalid};
use crate::custom::names;
use delegraph_compute::{AttentionF32, AttentionSizes, Isa, Normalize, compute_error};

pub(super) fn register(resolver: &mut MutableOpResolver) {
    let normalization = |kind: Kind| {
        Registration::new(move |cx| {
            let options = Map::parse(cx.custom_options)?;
            let groups = if kind == Kind::Group { options.get::<usize>("num_groups")? } else { 1 };
            if groups == 0 {
                return Err(invalid("the option num_groups is 0"));
            }
            let (centered, epsilon) = (kind != Kind::RootMeanSquare, options.get("epsilon")?);
            Ok(Normalization {
                kind,
                shape: Normalize { centered, epsilon, channels: 0, groups, positions: 1 },
            })
        })
    };
    let attention = Registration::new(|cx| {
        let scale = Map::parse(cx.custom_options)?.get("scale")?;
        Ok(Attention { scale, prepared: None, mask: None })
    });
    resolver
        .add_custom(names::LAYER_NORM, normalization(Kind::Layer), 1)
        .add_custom(names::GROUP_NORM, normalization(Kind::Group), 1)
        .add_custom(names::RMS_NORM, normalization(Kind::RootMeanSquare), 1)
        .add_custom(names::ATTENTION, attention, 1);
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Layer,
    Group,
    RootMeanSquare,
}

/// Inputs: `x`, factors and, except for the root mean square, terms per channel.
struct Normalization {
    kind: Kind,
    shape: Normalize,
}

impl Kernel for Normalization {
    fn prepare(&mut self, cx: &mut PrepareContext<'_>) -> Result<()> {
        let inputs = if self.kind == Kind::RootMeanSquare { 2 } else { 3 };
        check_floats(cx, inputs, 1)?;
        let shape = cx.input(0)?.shape().clone();
        let Some((&channels, outer)) = shape.split_last().filter(|(c, _)| **c > 0) else {
            return Err(invalid(format!("shape {shape} has 0 channels")));
        };
        for i in 1..inputs {
            let [count] = dims::<1>(cx.input(i)?)?;
            if count != channels {
                return Err(invalid(format!(
                    "\"{}\" has {}, expected {channels}",
                    cx.input(i)?.name(),
                    counted(count, "element")
                )));
            }
        }
        let groups = self.shape.groups;
        if !channels.is_multiple_of(groups) {
            let verb = if channels == 1 { "is" } else { "are" };
            let channels = counted(channels, "channel");
            return Err(invalid(format!("{channels} {verb} not a multiple of {groups} groups")));
        }
        self.shape.channels = channels;
        // A group is normalized together with all positions, the dimensions between the first and the last.
        self.shape.positions = match self.kind {
            Kind::Group => outer.iter().skip(1).product(),
            _ => 1,
        };
        cx.set_output_shape(0, shape)
    }

    fn invoke(&mut self, cx: &mut InvokeContext<'_>) -> Result<()> {
        let (x, factors, output) = (cx.input::<f32>(0)?, cx.input::<f32>(1)?, cx.output::<f32>(0)?);
        let terms: &[f32] = if self.shape.centered { cx.input(2)? } else { &[] };
        self.shape.run(Isa::best(), [x, factors, terms], output, cx.parallel()).map_err(compute_error)
    }
}

/// Inputs: queries, keys, values, and optionally an addend to the scores.
struct Attention {
    scale: f32,
    /// `None` if a dimension is 0; the output, if it has elements, is then zero.
    prepared: Option<(AttentionF32, Temporary)>,
    /// Elements of the addend from one batch, head and query to the next; 0 if it is broadcast.
    mask: Option<[usize; 3]>,
}

impl Kernel for Attention {
    fn prepare(&mut self, cx: &mut PrepareContext<'_>) -> Result<()> {
        let inputs = if cx.input_count() == 4 { 4 } else { 3 };
        check_floats(cx, inputs, 1)?;
        let [batch, queries, heads, width] = dims::<4>(cx.input(0)?)?;
        let [key_batch, keys, groups, key_width] = dims::<4>(cx.input(1)?)?;
        let values = dims::<4>(cx.input(2)?)?;
        let fits = (key_batch, key_width) == (batch, width)
            && values == [key_batch, keys, groups, key_width]
            && groups > 0
            && heads.is_multiple_of(groups);
        if !fits {
            let shapes = [0, 1, 2].map(|i| cx.input(i).map(|t| t.shape().to_string()).unwrap_or_default());
            return Err(invalid(format!(
                "shapes of queries, keys and values do not match: {}",
                shapes.join(", ")
            )));
        }
        self.mask = None;
        if inputs == 4 {
            let shape = dims::<4>(cx.input(3)?)?;
            let wanted = [batch, heads, queries, keys];
            let fits = |(i, (has, wants)): (usize, (&usize, usize))| *has == wants || (*has == 1 && i < 3);
            if !shape.iter().zip(wanted).enumerate().all(fits) {
                return Err(invalid(format!(
                    "the addend to the scores has the shape {shape:?}, expected {wanted:?}"
                )));
            }
            let [b, h, q, k] = shape;
            let step = |size: usize, step: usize| if size == 1 { 0 } else { step };
            self.mask = Some([step(b, h * q * k), step(h, q * k), step(q, k)]);
        }
        self.prepared = None;
        if [batch, queries, heads, width, keys].iter().all(|size| *size > 0) {
            let sizes = AttentionSizes { batch, queries, heads, width, keys, groups };
            let attention =
                AttentionF32::new(Isa::best(), sizes, self.scale, cx.threads()).map_err(compute_error)?;
            let scratch = cx.temporary(attention.scratch_len().map_err(compute_error)?);
            self.prepared = Some((attention, scratch));
        }
        let shape = cx.input(0)?.shape().clone();
        cx.set_output_shape(0, shape)
    }

    fn invoke(&mut self, cx: &mut InvokeContext<'_>) -> Result<()> {
        let (q, k, v) = (cx.input::<f32>(0)?, cx.input::<f32>(1)?, cx.input::<f32>(2)?);
        let output = cx.output::<f32>(0)?;
        let Some((attention, scratch)) = &self.prepared else {
            output.fill(0.0);
            return Ok(());
        };
        let added = match self.mask {
            Some(steps) => Some((cx.input::<f32>(3)?, steps)),
            None => None,
        };
        let scratch = cx.temporary::<u8>(*scratch)?;
        attention.run([q, k, v], added, output, scratch, cx.parallel()).map_err(compute_error)
    }
}
