//! Time on the device: of the whole pass or, where somebody profiles, of each dispatch.

use std::time::Duration;

use crate::context::Context;

/// Bytes of a time stamp.
const STAMP: u64 = 8;

/// Takes the time of a partition's dispatches on the device.
pub(crate) struct Timer {
    queries: wgpu::QuerySet,
    resolved: wgpu::Buffer,
    /// Where in the staging buffer.
    staged: u64,
    /// Nanoseconds per tick.
    period: f32,
    each: bool,
    /// Begin and end of each pass, in ticks.
    stamps: Vec<[u64; 2]>,
}

/// How many passes are measured.
fn passes(context: &Context, dispatches: usize) -> usize {
    let most = wgpu::QUERY_SET_MAX_QUERIES as usize / 2;
    if context.profile { dispatches.min(most) } else { 1 }
}

impl Timer {
    /// A timer of so many dispatches whose stamps are at `staged` in the staging buffer; `None` where the device does
    /// not measure time.
    pub(crate) fn new(context: &Context, dispatches: usize, staged: u64) -> Option<Self> {
        let period = context.timestamp_period.filter(|_| dispatches > 0)?;
        let passes = passes(context, dispatches);
        let count = 2 * passes as u32;
        Some(Timer {
            queries: context.device.create_query_set(&wgpu::QuerySetDescriptor {
                label: None,
                ty: wgpu::QueryType::Timestamp,
                count,
            }),
            resolved: context.device.create_buffer(&wgpu::BufferDescriptor {
                label: Some("time stamps"),
                size: STAMP * u64::from(count),
                usage: wgpu::BufferUsages::QUERY_RESOLVE | wgpu::BufferUsages::COPY_SRC,
                mapped_at_creation: false,
            }),
            staged,
            period,
            each: context.profile,
            stamps: vec![[0; 2]; passes],
        })
    }

    /// Bytes in the staging buffer of a timer of so many dispatches.
    pub(crate) fn bytes_for(context: &Context, dispatches: usize) -> u64 {
        match context.timestamp_period {
            Some(_) if dispatches > 0 => 2 * STAMP * passes(context, dispatches) as u64,
            _ => 0,
        }
    }

    /// Whether each dispatch is measured, which takes a pass for each.
    pub(crate) fn each(&self) -> bool {
        self.each
    }

    /// What pass `i` writes. The device has no room for more stamps than it says: passes beyond that write none.
    pub(crate) fn writes(&self, i: usize) -> Option<wgpu::ComputePassTimestampWrites<'_>> {
        let first = (i < self.stamps.len()).then_some(2 * i as u32)?;
        Some(wgpu::ComputePassTimestampWrites {
            query_set: &self.queries,
            beginning_of_pass_write_index: Some(first),
            end_of_pass_write_index: Some(first + 1),
        })
    }

    /// Copies the stamps to the staging buffer.
    pub(crate) fn resolve(&self, encoder: &mut wgpu::CommandEncoder, staging: &wgpu::Buffer) {
        let count = 2 * self.stamps.len() as u32;
        encoder.resolve_query_set(&self.queries, 0..count, &self.resolved, 0);
        encoder.copy_buffer_to_buffer(&self.resolved, 0, staging, self.staged, Some(self.bytes()));
    }

    /// Bytes in the staging buffer.
    pub(crate) fn bytes(&self) -> u64 {
        2 * STAMP * self.stamps.len() as u64
    }

    /// Where they begin.
    pub(crate) fn staged(&self) -> u64 {
        self.staged
    }

    /// Takes the stamps from the staging buffer; returns the milliseconds from the first to the last.
    pub(crate) fn read(&mut self, bytes: &[u8]) -> Option<f64> {
        let mut stamps = bytes.as_chunks::<8>().0.iter().map(|stamp| u64::from_le_bytes(*stamp));
        for pass in &mut self.stamps {
            *pass = [stamps.next()?, stamps.next()?];
        }
        let ([begin, _], [_, end]) = (self.stamps.first()?, self.stamps.last()?);
        Some(end.saturating_sub(*begin) as f64 * f64::from(self.period) / 1e6)
    }

    /// How long each dispatch took in the last run that was read. Empty where only all of them are measured.
    pub(crate) fn times(&self) -> impl Iterator<Item = Duration> + '_ {
        let time = |[begin, end]: &[u64; 2]| {
            let nanoseconds = end.saturating_sub(*begin) as f64 * f64::from(self.period);
            Duration::from_nanos(nanoseconds as u64)
        };
        self.stamps.iter().filter(|_| self.each).map(time)
    }
}
