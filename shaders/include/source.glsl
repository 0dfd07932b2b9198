// Where a convolution reads. The shader has declared the constants UPSAMPLE, PAD and FLAGS.

bool has(uint flag) { return (FLAGS & flag) != 0; }

// Where a coordinate of the padded, upsampled input lies in the input; outside: -1 (zero padding).
int source(int at, uint size)
{
    int last = int(size * UPSAMPLE) - 1;
    if (has(FLAG_REFLECT) && last < int(PAD)) { // too short for that
        at = clamp(at, 0, last);
    } else if (has(FLAG_REFLECT)) {
        at = abs(at);
        at = clamp(at > last ? 2 * last - at : at, 0, last);
    }
    return at < 0 || at > last ? -1 : at / int(UPSAMPLE);
}
