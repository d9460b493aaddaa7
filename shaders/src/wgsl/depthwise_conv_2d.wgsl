// Depthwise convolution with a constant window size. An invocation computes a strip of TILE columns and
// `rows` rows of UNIT channels. It iterates over input rows: each is loaded once, and added to
// all LIVE output rows that depend on it; the oldest one is then complete and is stored.
//
// With dilation, a strip has every dilation-th column and row, so that it shares its loads as well.
//
// weights: [window row][window column][channels], then the bias.

struct Params {
    // Number of invocations.
    count: u32,
    // Channels in units.
    channels: u32,
    in_h: i32,
    in_w: i32,
    out_h: u32,
    out_w: u32,
    dilation_h: u32,
    dilation_w: u32,
    // Rows above and columns left of the image.
    pad_h: i32,
    pad_w: i32,
    // Tiles along the columns and strips along the rows, of all phases of the dilation.
    tiles: u32,
    strips: u32,
    rows: u32,
#include "epilogue_params"
}

#if UNIT > 1
alias T = vec{{UNIT}}<f32>;
#else
alias T = f32;
#endif

@group(0) @binding(0) var<storage, read> input: array<T>;
@group(0) @binding(1) var<storage, read> weights: array<T>;
@group(0) @binding(2) var<storage, read_write> output: array<T>;
#include "params"

#include "epilogue"
#include "item"
#include "divide"

@compute @workgroup_size({{WORKGROUP}})
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    p = uniforms;
    let index = item_index(group, groups, local);
    if index >= p.count {
        return;
    }
    let place = divide(index, p.channels);
    let channel = index - place * p.channels;
    let above = divide(place, p.tiles);
    let tile = place - above * p.tiles;
    let n = divide(above, p.strips);
    let strip = above - n * p.strips;
    let tile_row = divide(tile, p.dilation_w);
    let strip_row = divide(strip, p.dilation_h);
    // First output column and row.
    let x = tile - tile_row * p.dilation_w + tile_row * p.dilation_w * {{TILE}}u;
    let y = strip - strip_row * p.dilation_h + strip_row * p.dilation_h * p.rows;
    let left = i32(x) * {{STRIDE_W}} - p.pad_w;
    let top = i32(y) * {{STRIDE_H}} - p.pad_h;
#for s in 0..COLUMNS
    let column_{{s}} = left + {{s}} * i32(p.dilation_w);
    let inside_{{s}} = (column_{{s}} >= 0) & (column_{{s}} < p.in_w);
    let at_{{s}} = u32(clamp(column_{{s}}, 0, p.in_w - 1)) * p.channels + channel;
#endfor
#for k in 0..WINDOW_H * WINDOW_W
    let w_{{k}} = weights[{{k}}u * p.channels + channel];
#endfor
    let bias = weights[{{WINDOW_H * WINDOW_W}}u * p.channels + channel];
#for i in 0..TILE
    var sum_0_{{i}} = bias;
#for q in 1..LIVE
    var sum_{{q}}_{{i}} = bias;
#endfor
#endfor
    for (var step = 0u; step < p.rows + {{LIVE - 1}}u; step++) {
#for j in 0..STRIDE_H
        {
            let row = top + i32((step * {{STRIDE_H}}u + {{j}}u) * p.dilation_h);
            let inside = (row >= 0) & (row < p.in_h);
            let at_row = (n * u32(p.in_h) + u32(clamp(row, 0, p.in_h - 1))) * u32(p.in_w) * p.channels;
#for s in 0..COLUMNS
            let v_{{s}} = select(T(), input[at_row + at_{{s}}], inside & inside_{{s}});
#endfor
#for q in 0..LIVE
#if q * STRIDE_H + j < WINDOW_H
#for i in 0..TILE
#for k in 0..WINDOW_W
            sum_{{q}}_{{i}} += v_{{i * STRIDE_W + k}} * w_{{(q * STRIDE_H + j) * WINDOW_W + k}};
#endfor
#endfor
#endif
#endfor
        }
#endfor
        let out_y = y + (step - {{LIVE - 1}}u) * p.dilation_h;
        if step >= {{LIVE - 1}}u && out_y < p.out_h {
#for i in 0..TILE
            {
                let out_x = x + {{i}}u * p.dilation_w;
                if out_x < p.out_w {
                    let at = ((n * p.out_h + out_y) * p.out_w + out_x) * p.channels + channel;
                    output[at] = finish(sum_{{LIVE - 1}}_{{i}}, at, channel);
                }
            }
#endfor
        }
#for i in 0..TILE
#for q in 1..LIVE
        sum_{{LIVE - q}}_{{i}} = sum_{{LIVE - q - 1}}_{{i}};
#endfor
        sum_0_{{i}} = bias;
#endfor
    }
}
