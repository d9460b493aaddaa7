#include "split_tile"
    if o >= p.out_c {
        return;
    }
#for i in 0..PIXELS
    if pixel_{{i}} < p.out_pixels {
#for c in 0..WIDTH
#if INTEGERS
        let result_{{i}}_{{c}} = result(sum_{{i}}_{{c}}, o + {{c}}u, pixel_{{i}});
#else
        let result_{{i}}_{{c}} = sum_{{i}}_{{c}};
#endif
#endfor
        let at = (pixel_{{i}} * p.out_c + o) / {{WIDTH}}u;
#if WIDTH == 1
        output[at] = finish(result_{{i}}_0, at, o);
#else
#if WIDTH == 2
        output[at] = finish(T(result_{{i}}_0, result_{{i}}_1), at, o / 2u);
#else
        output[at] = finish(T(result_{{i}}_0, result_{{i}}_1, result_{{i}}_2, result_{{i}}_3), at, o / 4u);
#endif
#endif
    }
#endfor
