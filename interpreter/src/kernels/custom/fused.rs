//! Custom ops of this project, which the fusion pipeline makes of normalizations and attention where it may: see
//! `crate::fusion::composites::names`.

use delegraph_core::flex::Map;
use delegraph_core::kernel::{InvokeContext, Kernel, PrepareContext, Temporary};
use delegraph_core::{Error, MutableOpResolver, Registration, Result};

use super::{check_floats, dims, invalid};
use crate::fusion::composites::names;

pub(super) fn register(resolver: &mut MutableOpResolver) {
    let normalization = |kind: Kind| {
        Registration::new(move |cx| {
            let options = Map::parse(cx.custom_options)?;
            let groups = if kind == Kind::Group { options.get::<usize>("num_groups")? } else { 1 };
            if groups == 0 {
                return Err(invalid("no groups to normalize"));
            }
            Ok(Normalization { kind, groups, epsilon: options.get("epsilon")?, vectors: 0, channels: 0 })
        })
    };
    let attention = Registration::new(|cx| {
        let scale = Map::parse(cx.custom_options)?.get("scale")?;
        Ok(Attention { scale, sizes: Sizes::default(), scores: None })
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

/// `x`, factors and (but for the root mean square) terms per channel.
struct Normalization {
    kind: Kind,
    groups: usize,
    epsilon: f32,
    /// How many rows are normalized apart.
    vectors: usize,
    channels: usize,
}

impl Kernel for Normalization {
    fn prepare(&mut self, cx: &mut PrepareContext<'_>) -> Result<()> {
        let inputs = if self.kind == Kind::RootMeanSquare { 2 } else { 3 };
        check_floats(cx, inputs, 1)?;
        let shape = cx.input(0)?.shape().clone();
        let Some((&channels, outer)) = shape.split_last().filter(|(c, _)| **c > 0) else {
            return Err(invalid(format!("no channels in {shape}")));
        };
        for i in 1..inputs {
            let [count] = dims::<1>(cx.input(i)?)?;
            if count != channels {
                return Err(invalid(format!(
                    "\"{}\" has {count} elements for {channels} channels",
                    cx.input(i)?.name()
                )));
            }
        }
        if !channels.is_multiple_of(self.groups) {
            return Err(invalid(format!("{} groups of {channels} channels", self.groups)));
        }
        self.channels = channels;
        self.vectors = match self.kind {
            Kind::Group => outer.first().copied().unwrap_or(1),
            _ => outer.iter().product(),
        };
        cx.set_output_shape(0, shape)
    }

    fn invoke(&mut self, cx: &mut InvokeContext<'_>) -> Result<()> {
        let (x, factors, output) = (cx.input::<f32>(0)?, cx.input::<f32>(1)?, cx.output::<f32>(0)?);
        let terms = match self.kind {
            Kind::RootMeanSquare => None,
            _ => Some(cx.input::<f32>(2)?),
        };
        if x.is_empty() || self.vectors == 0 {
            return Ok(());
        }
        let per = x.len() / self.vectors;
        let width = self.channels / self.groups;
        for (x, y) in x.chunks_exact(per).zip(output.chunks_exact_mut(per)) {
            for group in 0..self.groups {
                let channels = group * width..(group + 1) * width;
                let rows = || x.chunks_exact(self.channels).filter_map(|row| row.get(channels.clone()));
                let count = (per / self.groups) as f32;
                let mean = match terms {
                    Some(_) => rows().flatten().sum::<f32>() / count,
                    None => 0.0,
                };
                let variance = rows().flatten().map(|v| (v - mean) * (v - mean)).sum::<f32>() / count;
                let scale = 1.0 / (variance + self.epsilon).sqrt();
                let own = y.chunks_exact_mut(self.channels).zip(x.chunks_exact(self.channels));
                for (y, x) in own {
                    for (c, (y, x)) in y.iter_mut().zip(x).enumerate().skip(channels.start).take(width) {
                        let term = terms.and_then(|t| t.get(c)).copied().unwrap_or(0.0);
                        *y = (x - mean) * scale * factors.get(c).copied().unwrap_or(0.0) + term;
                    }
                }
            }
        }
        Ok(())
    }
}

/// How large everything is.
#[derive(Debug, Clone, Copy, Default)]
struct Sizes {
    batch: usize,
    queries: usize,
    heads: usize,
    width: usize,
    keys: usize,
    groups: usize,
    /// Elements from one batch, head and query to the next in what is added to the scores; 0 where one is for all.
    mask: Option<[usize; 3]>,
}

/// Queries, keys, values, and what is added to the scores.
struct Attention {
    scale: f32,
    sizes: Sizes,
    scores: Option<Temporary>,
}

impl Kernel for Attention {
    fn prepare(&mut self, cx: &mut PrepareContext<'_>) -> Result<()> {
        let inputs = if cx.num_inputs() == 4 { 4 } else { 3 };
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
            return Err(invalid(format!("queries, keys and values do not fit: {}", shapes.join(", "))));
        }
        let mut mask = None;
        if inputs == 4 {
            let shape = dims::<4>(cx.input(3)?)?;
            let wanted = [batch, heads, queries, keys];
            if !shape
                .iter()
                .zip(wanted)
                .enumerate()
                .all(|(i, (&has, wants))| has == wants || (has == 1 && i < 3))
            {
                return Err(invalid(format!(
                    "what is added to the scores is {shape:?}, expected {wanted:?}"
                )));
            }
            let [b, h, q, k] = shape;
            let step = |size: usize, step: usize| if size == 1 { 0 } else { step };
            mask = Some([step(b, h * q * k), step(h, q * k), step(q, k)]);
        }
        self.sizes = Sizes { batch, queries, heads, width, keys, groups, mask };
        self.scores = Some(cx.temporary_of::<f32>(keys)?);
        let shape = cx.input(0)?.shape().clone();
        cx.set_output_shape(0, shape)
    }

    fn invoke(&mut self, cx: &mut InvokeContext<'_>) -> Result<()> {
        let Sizes { batch, queries, heads, width, keys, groups, mask } = self.sizes;
        let (q, k, v) = (cx.input::<f32>(0)?, cx.input::<f32>(1)?, cx.input::<f32>(2)?);
        let added = match mask {
            Some(steps) => Some((steps, cx.input::<f32>(3)?)),
            None => None,
        };
        let output = cx.output::<f32>(0)?;
        let scores = self.scores.ok_or_else(|| Error::State("the kernel was not prepared".into()))?;
        let scores = cx.temporary::<f32>(scores)?;
        let share = heads / groups.max(1);
        let rows = output.chunks_exact_mut(width.max(1)).zip(q.chunks_exact(width.max(1)));
        for (i, (output, query)) in rows.enumerate().take(batch * queries * heads) {
            let (head, at, b) = (i % heads, i / heads % queries, i / heads / queries);
            let row = |t: &[f32], key: usize| {
                let start = ((b * keys + key) * groups + head / share) * width;
                start..(start + width).min(t.len())
            };
            for (key, score) in scores.iter_mut().enumerate().take(keys) {
                let own = k.get(row(k, key)).unwrap_or_default();
                *score = self.scale * query.iter().zip(own).map(|(a, b)| a * b).sum::<f32>();
                if let Some(([per_batch, per_head, per_query], added)) = added {
                    let place = b * per_batch + head * per_head + at * per_query + key;
                    *score += added.get(place).copied().unwrap_or(0.0);
                }
            }
            let scores = scores.get_mut(..keys).unwrap_or_default();
            let largest = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            scores.iter_mut().for_each(|s| *s = (*s - largest).exp());
            let sum: f32 = scores.iter().sum();
            output.fill(0.0);
            for (key, &score) in scores.iter().enumerate() {
                let own = v.get(row(v, key)).unwrap_or_default();
                output.iter_mut().zip(own).for_each(|(o, v)| *o += score / sum * v);
            }
        }
        Ok(())
    }
}
