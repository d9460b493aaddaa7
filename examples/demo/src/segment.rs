//! Replaces the background, using the segmentation model's mask.

use image::{Rgb, RgbImage};

use crate::photo::Fit;

/// Width and height of `selfie_segmentation`'s input and mask.
pub(crate) const SIZE: u32 = 256;

/// Converts a byte of the photo to an input value.
pub(crate) fn value(byte: f32) -> f32 {
    byte / 255.0
}

/// Returns the person in front of another background, at the photo's own resolution. `mask` is `[1, 256, 256, 1]`, 1 on
/// the person.
pub(crate) fn replace_background(photo: &RgbImage, mask: &[f32], fit: Fit) -> RgbImage {
    RgbImage::from_fn(photo.width(), photo.height(), |x, y| {
        let at = fit.to_square([x as f32 + 0.5, y as f32 + 0.5]);
        let person = soft_threshold(bilinear(mask, fit.size as usize, at));
        let behind = background(x as f32 / photo.width() as f32, y as f32 / photo.height() as f32);
        let Rgb(front) = *photo.get_pixel(x, y);
        Rgb(std::array::from_fn(|c| {
            (f32::from(front[c]) * person + behind[c] * (1.0 - person)).round() as u8
        }))
    })
}

/// Cuts off the mask's wide, faint edge, where the old background would be visible.
fn soft_threshold(mask: f32) -> f32 {
    let t = ((mask - 0.4) / 0.5).clamp(0.0, 1.0);
    t * t * (3.0 - 2.0 * t)
}

/// A mask's value at a point in pixels, whose centres are at halves; the border continues outside.
fn bilinear(mask: &[f32], size: usize, [x, y]: [f32; 2]) -> f32 {
    let last = size.saturating_sub(1);
    let split = |v: f32| {
        let v = (v - 0.5).clamp(0.0, last as f32);
        let low = v as usize;
        (low, (low + 1).min(last), v - low as f32)
    };
    let ((x0, x1, fx), (y0, y1, fy)) = (split(x), split(y));
    let at = |x: usize, y: usize| mask.get(y * size + x).copied().unwrap_or(0.0);
    let row = |y: usize| at(x0, y) * (1.0 - fx) + at(x1, y) * fx;
    row(y0) * (1.0 - fy) + row(y1) * fy
}

/// An evening sky: a vertical gradient with a glow low on the right. `x` and `y` from 0 to 1.
fn background(x: f32, y: f32) -> [f32; 3] {
    const TOP: [f32; 3] = [24.0, 32.0, 92.0];
    const BOTTOM: [f32; 3] = [250.0, 150.0, 110.0];
    const GLOW: [f32; 3] = [255.0, 226.0, 150.0];
    let glow = (-((x - 0.8).powi(2) + (y - 0.75).powi(2)) * 8.0).exp();
    std::array::from_fn(|c| {
        let sky = TOP[c] + (BOTTOM[c] - TOP[c]) * y;
        sky + (GLOW[c] - sky) * glow
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mask_chooses_between_photo_and_background() {
        let photo = RgbImage::from_pixel(8, 8, Rgb([1, 2, 3]));
        let fit = Fit::new(8, 8, 4);
        assert_eq!(replace_background(&photo, &[1.0; 16], fit), photo);
        let hidden = replace_background(&photo, &[0.0; 16], fit);
        assert!(hidden.pixels().all(|p| p.0[2] > 50));
    }

    #[test]
    fn the_mask_is_interpolated() {
        let mask = [0.0, 1.0, 0.0, 1.0];
        assert_eq!(bilinear(&mask, 2, [0.0, 0.0]), 0.0);
        assert_eq!(bilinear(&mask, 2, [1.0, 1.0]), 0.5);
        assert_eq!(bilinear(&mask, 2, [1.25, 0.3]), 0.75);
        assert_eq!(bilinear(&mask, 2, [9.0, 9.0]), 1.0);
    }
}
