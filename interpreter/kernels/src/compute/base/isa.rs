//! Instruction sets of the inner loops.

use std::sync::OnceLock;

/// An instruction set that this processor has.
///
/// [`Isa::best`] and [`Isa::available`], which query the processor, are the only sources of values, so a value is a
/// proof that the instructions exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Isa(Level);

/// Instruction sets that inner loops are compiled for, slowest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    Portable,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Avx512,
    #[cfg(target_arch = "x86_64")]
    Avx512Vnni,
}

impl Isa {
    /// The set that every processor has.
    pub const PORTABLE: Self = Self(Level::Portable);

    /// Returns the fastest set of this processor.
    pub fn best() -> Self {
        static BEST: OnceLock<Isa> = OnceLock::new();
        *BEST.get_or_init(|| Self::available().last().copied().unwrap_or(Self::PORTABLE))
    }

    /// Returns all sets of this processor, slowest first. Tests run each of them.
    pub fn available() -> &'static [Self] {
        static ALL: OnceLock<Vec<Isa>> = OnceLock::new();
        ALL.get_or_init(detect)
    }

    /// Name for reports.
    pub fn name(self) -> &'static str {
        match self.0 {
            Level::Portable => "portable",
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => "avx2",
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => "avx512",
            #[cfg(target_arch = "x86_64")]
            Level::Avx512Vnni => "avx512vnni",
        }
    }

    pub(crate) fn level(self) -> Level {
        self.0
    }
}

fn detect() -> Vec<Isa> {
    #[allow(unused_mut, reason = "other architectures have only the portable set")]
    let mut found = vec![Isa::PORTABLE];
    #[cfg(target_arch = "x86_64")]
    {
        let avx2 = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
        let avx512 = avx2
            && is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl");
        if avx2 {
            found.push(Isa(Level::Avx2));
        }
        if avx512 {
            found.push(Isa(Level::Avx512));
        }
        if avx512 && is_x86_feature_detected!("avx512vnni") {
            found.push(Isa(Level::Avx512Vnni));
        }
    }
    found
}
