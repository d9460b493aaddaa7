        // PIXELS_ALONG (CHANNELS_ALONG): loaded vectors have four pixels (channels) of a term; otherwise four terms of
        // one.
#for v in 0..PIXEL_LOADS
#for q in 0..4
        pixels[pixel_term_{{v}} * 4u + {{q}}u][pixel_four_{{v}} / {{ROWS}}u][pixel_four_{{v}} % {{ROWS}}u] =
#if PIXELS_ALONG
            pixel_{{v}}_{{q}};
#else
            V(pixel_{{v}}_0[{{q}}], pixel_{{v}}_1[{{q}}], pixel_{{v}}_2[{{q}}], pixel_{{v}}_3[{{q}}]);
#endif
#endfor
#endfor
#for v in 0..FILTER_LOADS
#for q in 0..4
        channels[channel_term_{{v}} * 4u + {{q}}u][channel_four_{{v}} / {{COLUMNS}}u][channel_four_{{v}} % {{COLUMNS}}u] =
#if CHANNELS_ALONG
            filter_{{v}}_{{q}};
#else
            V(filter_{{v}}_0[{{q}}], filter_{{v}}_1[{{q}}], filter_{{v}}_2[{{q}}], filter_{{v}}_3[{{q}}]);
#endif
#endfor
#endfor
