//! The kernels that a test makes, for a device of each kind.

use std::collections::BTreeMap;

use delegraph_shaders::{Caps, Kernel, ShaderError, VariantKey};

use super::check_within;

const SOFTWARE: Caps = Caps::WEBGPU.with_software(true);
const SHARING: Caps = SOFTWARE.with_subgroups(8);
/// One device of each kind that shaders distinguish.
pub(crate) const DEVICES: [Caps; 4] = [Caps::WEBGPU, Caps::WEBGPU.with_subgroups(0), SOFTWARE, SHARING];

/// The kernels for all devices, by key.
#[derive(Default)]
pub(crate) struct Kernels(BTreeMap<VariantKey, Kernel>);

impl Kernels {
    #[track_caller]
    pub(crate) fn add(&mut self, make: impl Fn(&Caps) -> Result<Kernel, ShaderError>) {
        for caps in DEVICES {
            self.insert(make(&caps).unwrap());
        }
    }

    #[track_caller]
    pub(crate) fn insert(&mut self, kernel: Kernel) {
        if let Some(before) = self.0.get(&kernel.variant.key) {
            assert_eq!(
                before.variant.source(),
                kernel.variant.source(),
                "{}: one key, two sources",
                kernel.variant.key
            );
            let accesses = |k: &Kernel| k.variant.bindings.iter().map(|b| b.access()).collect::<Vec<_>>();
            assert_eq!(accesses(before), accesses(&kernel), "{}: one key, two layouts", kernel.variant.key);
            assert_eq!(
                before.variant.features, kernel.variant.features,
                "{}: one key, different features",
                kernel.variant.key
            );
        }
        self.0.insert(kernel.variant.key.clone(), kernel);
    }

    #[track_caller]
    pub(crate) fn check(&self) {
        self.check_within(&Caps::WEBGPU);
    }

    /// Checks the kernels within the workgroup memory of a device.
    #[track_caller]
    pub(crate) fn check_within(&self, caps: &Caps) {
        assert!(!self.0.is_empty());
        self.0.values().for_each(|kernel| check_within(kernel, caps));
    }
}
