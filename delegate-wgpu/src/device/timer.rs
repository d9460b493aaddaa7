//! Time measurement on the device: of the whole pass, or of each dispatch when profiling.

use std::time::Duration;

use super::Gpu;

/// Bytes of a time stamp.
const STAMP: u64 = 8;

/// Measures the time of a partition's dispatches on the device.
pub(crate) struct Timer {
    queries: wgpu::QuerySet,
    resolved: wgpu::Buffer,
    /// Offset of the time stamps in the staging buffer, in bytes.
    staged: u64,
    /// Nanoseconds per tick.
    period: f32,
    each: bool,
    /// Begin and end of each measured pass, in ticks.
    stamps: Vec<[u64; 2]>,
}

/// The number of passes that are measured.
fn passes(gpu: &Gpu, dispatches: usize) -> usize {
    let most = wgpu::QUERY_SET_MAX_QUERIES as usize / 2;
    if gpu.profile { dispatches.min(most) } else { 1 }
}

impl Timer {
    /// Creates a timer for `dispatches` dispatches; its time stamps are copied to `staged` in the staging buffer.
    /// `None` if the device does not measure time, or without dispatches.
    pub(crate) fn new(gpu: &Gpu, dispatches: usize, staged: u64) -> Option<Self> {
        let period = gpu.timestamp_period.filter(|_| dispatches > 0)?;
        let passes = passes(gpu, dispatches);
        let count = 2 * passes as u32;
        Some(Timer {
            queries: gpu.device.create_query_set(&wgpu::QuerySetDescriptor {
                label: None,
                ty: wgpu::QueryType::Timestamp,
                count,
            }),
            resolved: gpu.device.create_buffer(&wgpu::BufferDescriptor {
                label: Some("time stamps"),
                size: STAMP * u64::from(count),
                usage: wgpu::BufferUsages::QUERY_RESOLVE | wgpu::BufferUsages::COPY_SRC,
                mapped_at_creation: false,
            }),
            staged,
            period,
            each: gpu.profile,
            stamps: vec![[0; 2]; passes],
        })
    }

    /// Returns the bytes in the staging buffer of a timer for `dispatches` dispatches.
    pub(crate) fn bytes_for(gpu: &Gpu, dispatches: usize) -> u64 {
        match gpu.timestamp_period {
            Some(_) if dispatches > 0 => 2 * STAMP * passes(gpu, dispatches) as u64,
            _ => 0,
        }
    }

    /// Returns whether each dispatch is measured, in a pass of its own.
    pub(crate) fn each(&self) -> bool {
        self.each
    }

    /// Returns the time stamps that pass `i` writes; `None` for passes beyond those that are measured.
    pub(crate) fn writes(&self, i: usize) -> Option<wgpu::ComputePassTimestampWrites<'_>> {
        let first = (i < self.stamps.len()).then_some(2 * i as u32)?;
        Some(wgpu::ComputePassTimestampWrites {
            query_set: &self.queries,
            beginning_of_pass_write_index: Some(first),
            end_of_pass_write_index: Some(first + 1),
        })
    }

    /// Returns the time stamps that pass `i` of `count` passes writes in a run that is measured as a whole; `None` for
    /// passes between the first and the last.
    pub(crate) fn writes_of_chunk(
        &self,
        i: usize,
        count: usize,
    ) -> Option<wgpu::ComputePassTimestampWrites<'_>> {
        let mut writes = self.writes(0)?;
        writes.beginning_of_pass_write_index = writes.beginning_of_pass_write_index.filter(|_| i == 0);
        writes.end_of_pass_write_index = writes.end_of_pass_write_index.filter(|_| i + 1 == count);
        (i == 0 || i + 1 == count).then_some(writes)
    }

    /// Copies the time stamps to the staging buffer.
    pub(crate) fn resolve(&self, encoder: &mut wgpu::CommandEncoder, staging: &wgpu::Buffer) {
        let count = 2 * self.stamps.len() as u32;
        encoder.resolve_query_set(&self.queries, 0..count, &self.resolved, 0);
        encoder.copy_buffer_to_buffer(&self.resolved, 0, staging, self.staged, Some(self.bytes()));
    }

    /// Returns the bytes in the staging buffer.
    pub(crate) fn bytes(&self) -> u64 {
        2 * STAMP * self.stamps.len() as u64
    }

    /// Returns the offset of the time stamps in the staging buffer, in bytes.
    pub(crate) fn staged(&self) -> u64 {
        self.staged
    }

    /// Reads the time stamps from the staging buffer; returns the time from the first to the last.
    pub(crate) fn read(&mut self, bytes: &[u8]) -> Option<Duration> {
        let mut stamps = bytes.as_chunks::<8>().0.iter().map(|stamp| u64::from_le_bytes(*stamp));
        for pass in &mut self.stamps {
            *pass = [stamps.next()?, stamps.next()?];
        }
        let ([begin, _], [_, end]) = (self.stamps.first()?, self.stamps.last()?);
        Some(self.time(*begin, *end))
    }

    /// Returns the time of each dispatch in the last run whose time stamps were read. Empty if only the whole pass
    /// is measured.
    pub(crate) fn times(&self) -> impl Iterator<Item = Duration> + '_ {
        self.stamps.iter().filter(|_| self.each).map(|[begin, end]| self.time(*begin, *end))
    }

    /// The time between two stamps.
    fn time(&self, begin: u64, end: u64) -> Duration {
        Duration::from_nanos((end.saturating_sub(begin) as f64 * f64::from(self.period)) as u64)
    }
}
