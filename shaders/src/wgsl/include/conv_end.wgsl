#include "split_tile"
    if o >= p.out_c {
        return;
    }
#if ROLLED && INTEGERS
    var sums = array<array<S, {{WIDTH}}>, {{PIXELS}}>(
#for i in 0..PIXELS
        array<S, {{WIDTH}}>(
#for c in 0..WIDTH
            sum_{{i}}_{{c}},
#endfor
        ),
#endfor
    );
    var pixels = array<u32, {{PIXELS}}>(
#for i in 0..PIXELS
        pixel_{{i}},
#endfor
    );
    for (var i = 0u; i < {{PIXELS}}u; i++) {
        let pixel = pixels[i];
#for c in 0..WIDTH
        let sum_{{c}} = sums[i][{{c}}];
#endfor
#include "conv_pixel"
    }
#else
#for i in 0..PIXELS
    {
        let pixel = pixel_{{i}};
#for c in 0..WIDTH
        let sum_{{c}} = sum_{{i}}_{{c}};
#endfor
#include "conv_pixel"
    }
#endfor
#endif
