//! Anti-aliased shapes, drawn by distance: a pixel's coverage is the part of it inside the shape.

use image::{Rgb, RgbImage};

/// The frame between two corners, in pixels.
pub(crate) fn frame(image: &mut RgbImage, min: [f32; 2], max: [f32; 2], thickness: f32, colour: Rgb<u8>) {
    let centre = [0, 1].map(|i| (min[i] + max[i]) / 2.0);
    let half = [0, 1].map(|i| (max[i] - min[i]).abs() / 2.0);
    paint(image, colour, |x, y| {
        let (dx, dy) = ((x - centre[0]).abs() - half[0], (y - centre[1]).abs() - half[1]);
        let outline = dx.max(0.0).hypot(dy.max(0.0)) + dx.max(dy).min(0.0);
        outline.abs() - thickness / 2.0
    });
}

/// A filled disc, in pixels.
pub(crate) fn disc(image: &mut RgbImage, centre: [f32; 2], radius: f32, colour: Rgb<u8>) {
    paint(image, colour, |x, y| (x - centre[0]).hypot(y - centre[1]) - radius);
}

/// Blends `colour` in by how deep a pixel's centre is inside a shape; `distance` is negative inside.
fn paint(image: &mut RgbImage, colour: Rgb<u8>, distance: impl Fn(f32, f32) -> f32) {
    for (x, y, pixel) in image.enumerate_pixels_mut() {
        let cover = (0.5 - distance(x as f32 + 0.5, y as f32 + 0.5)).clamp(0.0, 1.0);
        if cover > 0.0 {
            for (old, new) in pixel.0.iter_mut().zip(colour.0) {
                *old = (f32::from(*old) * (1.0 - cover) + f32::from(new) * cover).round() as u8;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHITE: Rgb<u8> = Rgb([255; 3]);

    fn drawn(draw: impl Fn(&mut RgbImage)) -> Vec<String> {
        let mut image = RgbImage::new(8, 6);
        draw(&mut image);
        let row = |y| (0..8).map(|x| if image.get_pixel(x, y).0[0] > 127 { '#' } else { '.' }).collect();
        (0..6).map(row).collect()
    }

    #[test]
    fn a_frame_is_hollow() {
        let rows = drawn(|image| frame(image, [1.5, 1.5], [6.5, 4.5], 1.0, WHITE));
        assert_eq!(rows, ["........", ".######.", ".#....#.", ".#....#.", ".######.", "........"]);
    }

    #[test]
    fn a_disc_is_full_and_may_leave_the_picture() {
        let rows = drawn(|image| disc(image, [0.5, 0.5], 2.2, WHITE));
        assert_eq!(rows, ["###.....", "##......", "#.......", "........", "........", "........"]);
    }
}
