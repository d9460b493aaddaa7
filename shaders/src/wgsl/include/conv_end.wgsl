#include "split_tile"
    if o >= p.out_c {
        return;
    }
#for i in 0..PIXELS
    if pixel_{{i}} < p.out_pixels {
        let at = (pixel_{{i}} * p.out_c + o) / {{WIDTH}}u;
#if WIDTH == 1
        output[at] = finish(sum_{{i}}_0, at, o);
#else
#if WIDTH == 2
        output[at] = finish(T(sum_{{i}}_0, sum_{{i}}_1), at, o / 2u);
#else
        output[at] = finish(T(sum_{{i}}_0, sum_{{i}}_1, sum_{{i}}_2, sum_{{i}}_3), at, o / 4u);
#endif
#endif
    }
#endfor
