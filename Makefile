# restored: everything is built, tested and run from here. `make run` and `make check` are all a user needs.
#   make            ./restored (installs nothing)        make run      install what is missing, build, serve
#   make check      install what tests need, run all     make models   download the official checkpoints
#   make san        ASan+UBSan, TSan tests               make lint     layering, naming, operator places
#   make fuzz       libFuzzer on the readers (clang)     make fuzz-replay  their corpus alone
#   make debug      build-debug/restored, with faults    make install, uninstall  DESTDIR, PREFIX, SYSCONFDIR
#   make deb        a package for Debian in build/       make check-deb  it on a clean Debian 12 with systemd
#   make bench      speed of networks and pipeline here  make bench-cpu, bench-gpu: on that kind of device
#   make bench-load   pictures a second of a full queue, on one device to all, beside PyTorch
#   make bench-memory what a server keeps after 200 pictures of 200 sizes; ARGS='--device vulkan:0 --count 50'
#   make bench-large  memory for results of 300 and 180 megapixels
#   make bench-inks   colours of CMYK pictures before and after, beside what JPEG itself costs; ARGS='PHOTO...'
#   make bench-store  the store of jobs with 100,000 of them
#   make bench-jobs  the whole server with 100,000 finished jobs
#   make bench-http   requests a second beside a bare libmicrohttpd server
#   make bench-page   the page's first paint, its longest task while 12 megapixels are chosen, its memory over 100 pictures
#   make bench-health how fast /healthz answers while all workers are busy
#   make soak       an hour of all kinds of requests, and what the server holds; ARGS=30: minutes
#   make chaos      front ends, workers and their PostgreSQL killed at random for CHAOS_SECONDS [300]: nothing is lost
#   make bench-cluster  what the database of several machines does at most, and jobs a second with BENCH_WORKERS [1,2,4,8] workers, BENCH_CORES [1] each (BENCH_HELD=1: they sleep)
#   make bench-share  a 200 MP picture by one worker and by several that share it; BENCH_ARGS='--workers 4 --cores 8 --mp 200'
#   make bench-start  time from exec to ready, with files of the official sizes, cache cold and warm
#   make check-long more of each, official sizes     make check-arm64  the CPU device's tests for aarch64, in qemu
#   make check-torch  official sizes beside PyTorch; ARGS='--device vulkan:0 --precision fp16'
#   make check-quality  figures of the starter models and the pipeline on ../shared; PARTS=sizes,borders for some of them,
#                   ARGS='--limit 8' for a quick look
#   make mutate     which small mistakes no test notices; ARGS='--seed 2 --count 50 server/image'
#   make check-reproducible  two folders, the same bytes
#   make deps       install packages alone               make format   clang-format everything
#   make sample     the sample, restored by the starter models, as the README shows it
# ARGS='--listen 127.0.0.1:9000' goes to the server of `make run`; SUITES='unit api' picks suites of `make check`;
# MODELS='all' or names, MODELS_MIRROR=dir-or-URL for `make models`.
CC       ?= cc
BUILD    ?= build
CFLAGS   ?= -O2 -g
WARN     := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla -Wundef
CPPFLAGS += -I. -D_GNU_SOURCE
# The program reads strangers' files: an overwritten return address or table of functions ends it. _FORTIFY_SOURCE wants an
# optimising compiler, and the sanitizers have checks of their own.
MACHINE  := $(shell $(CC) -dumpmachine)
HARDEN   := -fPIE -fstack-protector-strong $(if $(filter x86_64%,$(MACHINE)),-fcf-protection)
HARDEN   += $(if $(findstring -fsanitize,$(CFLAGS)),,$(if $(filter -O1 -O2 -O3 -Os,$(CFLAGS)),-U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2))
# The same bytes from every folder.
HARDEN   += -ffile-prefix-map=$(CURDIR)=.
override CFLAGS += -std=c17 $(WARN) -ffp-contract=off -fno-math-errno -pthread $(HARDEN) $(if $(CI),-Werror)
override LDFLAGS += -pie -Wl,-z,relro,-z,now,-z,noexecstack
# Formats of pictures beside JPEG and PNG, and colour profiles: a build does without those whose libraries are not there
# (PICTURES= leaves out all).
PICTURES ?= webp tiff heif jxl jp2 lcms
PICTURE_webp := libwebp libwebpmux libwebpdemux
PICTURE_tiff := libtiff-4
PICTURE_heif := libheif
PICTURE_jxl  := libjxl libjxl_threads
PICTURE_jp2  := libopenjp2
PICTURE_lcms := lcms2
PICTURES := $(foreach p,$(PICTURES),$(if $(shell pkg-config --exists $(PICTURE_$p) 2>/dev/null && echo yes),$p))
override CPPFLAGS += $(patsubst %,-DRESTORED_%,$(shell echo $(PICTURES) | tr a-z A-Z))
ifneq ($(PICTURES),)
override CPPFLAGS += $(shell pkg-config --cflags $(foreach p,$(PICTURES),$(PICTURE_$p)))
PICTURELIBS := $(shell pkg-config --libs $(foreach p,$(PICTURES),$(PICTURE_$p)))
endif
PICTURELIBS += -lpng -ljpeg
# Jobs that several machines share (store = postgresql://…): a build does without it where libpq is not there (LIBPQ=).
LIBPQ    ?= libpq
LIBPQ    := $(if $(LIBPQ),$(shell pkg-config --exists $(LIBPQ) 2>/dev/null && echo $(LIBPQ)))
ifneq ($(LIBPQ),)
override CPPFLAGS += -DRESTORED_LIBPQ $(shell pkg-config --cflags $(LIBPQ))
LIBPQLIBS := $(shell pkg-config --libs $(LIBPQ))
endif
LDLIBS   := -lcurl -lsqlite3 $(LIBPQLIBS) -larchive -lmicrohttpd -lgnutls -ljansson $(PICTURELIBS) -lnettle -lz -lm -pthread
GLSLC    := glslc

RUNTIME  := $(wildcard runtime/*.c runtime/*/*.c)
SERVER   := $(wildcard server/*.c server/*/*.c)
SHADERS  := $(wildcard shaders/*.comp)
# Files served or read by the program itself: the page, what is known of the official models, and what /openapi.json has
# of other programs' clients.
TEXTS    := static/index.html static/style.css static/worker.js
STATIC   := $(filter-out $(TEXTS),$(wildcard static/*.* server/compat/*.json)) config/models.conf
PAGE     := $(patsubst %,$(BUILD)/%,$(TEXTS) $(wildcard static/js/*.js))
# The models that ./restored works with where no official ones are; the tests' programs do without their 28 MB.
STARTER  := $(wildcard models/starter/*.safetensors)
LIBOBJ   := $(patsubst %.c,$(BUILD)/%.o,$(filter-out server/main.c,$(RUNTIME) $(SERVER)))
# The CPU device's kernels, once for each instruction set (which one runs is decided at run time), and all but Winograd's
# with sums in double.
KERNELS  := $(basename $(wildcard runtime/cpu/cpu_kernel_*.c))
EXACT    := $(filter-out %_winograd,$(KERNELS))
LIBOBJ   += $(EXACT:%=$(BUILD)/%.exact.o)
ifneq ($(filter x86_64%,$(MACHINE)),)
LIBOBJ   += $(foreach isa,avx2 avx512,$(KERNELS:%=$(BUILD)/%.$(isa).o)) $(EXACT:%=$(BUILD)/%.avx2.exact.o)
endif
# Test programs have the fault layer (runtime/backend/fault.h): what includes it is compiled once more for them.
FAULTY   := $(shell grep -l '"runtime/backend/fault.h"' runtime/*/*.c server/pipeline/*.c)
TESTOBJ  := $(filter-out $(FAULTY:%.c=$(BUILD)/%.o),$(LIBOBJ)) $(FAULTY:%.c=$(BUILD)/%.fault.o)
TESTS    := $(wildcard tests/unit/test_*.c tests/ops/test_*.c tests/golden/test_*.c)
TESTBIN  := $(patsubst %.c,$(BUILD)/%,$(TESTS))
TESTLIB  := $(patsubst %.c,$(BUILD)/%.o,$(wildcard tests/common/*.c))
FUZZERS  := $(patsubst tests/fuzz/%.c,%,$(wildcard tests/fuzz/fuzz_*.c))

all: restored

restored: $(BUILD)/restored
	@cp --remove-destination $< $@ # it may be running

$(BUILD)/restored: $(BUILD)/server/main.o $(LIBOBJ) $(BUILD)/embed.o $(BUILD)/starter.o
	$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $^ $(LDLIBS)

# Objects are compiled again when the flags change. -Werror and ccache leave them as they are.
FLAGS := $(subst ','\'',$(filter-out -Werror ccache,$(CC) $(CPPFLAGS) $(CFLAGS) $(LDFLAGS)))
$(BUILD)/flags: $(shell echo '$(FLAGS)' | cmp -s - $(BUILD)/flags || echo FORCE)
	@mkdir -p $(@D)
	@echo '$(FLAGS)' > $@

$(BUILD)/%.o: %.c $(BUILD)/flags
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) $(CFLAGS) -MMD -MP -c -o $@ $<

$(BUILD)/%.fault.o: %.c $(BUILD)/flags
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) -DRESTORED_FAULTS $(CFLAGS) -MMD -MP -c -o $@ $<

# Loops over pixels that are worth more than -O2 makes of them; none may change a sum's order.
VECTOR   := server/image/defect server/image/defect_grow server/image/text_page server/pipeline/pull_push server/pipeline/repair \
            server/pipeline/repair_change server/pipeline/repair_fill server/pipeline/repair_find server/pipeline/repair_grain \
            server/pipeline/repair_inner server/pipeline/repair_piece server/pipeline/repair_screen server/pipeline/repair_veil \
            server/pipeline/repair_window
$(VECTOR:%=$(BUILD)/%.o): override CFLAGS += -O3
$(KERNELS:%=$(BUILD)/%.o): override CFLAGS += $(KERNELFLAGS)
KERNELFLAGS = -O3 -ffp-contract=fast
AVX2   := -mavx2 -mfma
AVX512 := -mavx512f -mavx512dq -mavx512bw -mavx512vl $(AVX2) -mprefer-vector-width=512
define KERNEL
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) $(CFLAGS) $(KERNELFLAGS) $(1) -MMD -MP -c -o $@ $<
endef
$(BUILD)/%.exact.o: %.c $(BUILD)/flags
	$(call KERNEL,-DCPU_DOUBLE -DCPU_ISA=base_exact)
$(BUILD)/%.avx2.exact.o: %.c $(BUILD)/flags
	$(call KERNEL,$(AVX2) -DCPU_DOUBLE -DCPU_ISA=avx2_exact)
$(BUILD)/%.avx2.o: %.c $(BUILD)/flags
	$(call KERNEL,$(AVX2) -DCPU_ISA=avx2)
$(BUILD)/%.avx512.o: %.c $(BUILD)/flags
	$(call KERNEL,$(AVX512) -DCPU_ISA=avx512)

# Where the installed configuration lies is in the program; what has it is compiled again when it changes.
SYSCONFDIR ?= /etc
$(BUILD)/sysconfdir: $(shell echo '$(SYSCONFDIR)' | cmp -s - $(BUILD)/sysconfdir || echo FORCE)
	@mkdir -p $(@D)
	@echo '$(SYSCONFDIR)' > $@
SYSCONFUSERS := $(patsubst %,$(BUILD)/server/%.o,config_load cli/cli_serve)
$(SYSCONFUSERS): $(BUILD)/sysconfdir
$(SYSCONFUSERS): override CPPFLAGS += -DRESTORED_SYSCONFDIR='"$(SYSCONFDIR)"'

# The oracle's loops, and those over pixels, are plain C; let the compiler vectorise them.
$(BUILD)/runtime/cpu/cpu_ref.o $(BUILD)/runtime/backend/raster.o: override CFLAGS += -O3
$(patsubst %,$(BUILD)/server/%.o,image/filter image/pixel image/png_data image/resize image/warp pipeline/deep \
    pipeline/parse pipeline/repair_fill pipeline/step pipeline/tile pipeline/tint): override CFLAGS += -O3

# Each shader is compiled for fp32 and for fp16 storage, then all SPIR-V and the page go into one object.
SPIRV := $(foreach s,$(SHADERS),$(patsubst shaders/%.comp,$(BUILD)/shaders/%.f32.spv,$(s)) $(patsubst shaders/%.comp,$(BUILD)/shaders/%.f16.spv,$(s)))

SPIRV := $(filter-out %_packed.f32.spv,$(SPIRV)) # fp16 alone

$(BUILD)/shaders/%.f32.spv: shaders/%.comp $(wildcard shaders/include/*)
	@mkdir -p $(@D)
	$(GLSLC) --target-env=vulkan1.1 -O -DFP16=0 -I shaders/include -o $@ $<

$(BUILD)/shaders/%.f16.spv: shaders/%.comp $(wildcard shaders/include/*)
	@mkdir -p $(@D)
	$(GLSLC) --target-env=vulkan1.1 -O -DFP16=1 -I shaders/include -o $@ $<

SPIRV += $(patsubst shaders/matrix/%.comp,$(BUILD)/shaders/matrix_%.f16.spv,$(wildcard shaders/matrix/*.comp))
SPIRV += $(BUILD)/shaders/matrix_conv2d.f32.spv
MATRIX_PARTS = $(wildcard shaders/include/*) $(wildcard shaders/matrix/*.glsl) tools/matrix.sh

$(BUILD)/shaders/matrix_%.f32.spv: shaders/matrix/%.comp $(MATRIX_PARTS)
	@mkdir -p $(@D)
	sh tools/matrix.sh $< $@ 0

$(BUILD)/shaders/matrix_%.f16.spv: shaders/matrix/%.comp $(MATRIX_PARTS)
	@mkdir -p $(@D)
	sh tools/matrix.sh $< $@ 1

$(BUILD)/embed.s: $(SPIRV) $(STATIC) $(PAGE) tools/embed.sh
	sh tools/embed.sh embed_table $(SPIRV) $(STATIC) $(PAGE) > $@.part && mv $@.part $@

# A browser needs no comments, no indentation and no empty lines: lines that are nothing but a comment, of scripts and the style
# sheet, stay out of the program, and so do the ends of lines after " // " that have no quote, so that they are no part of a text.
$(PAGE): $(BUILD)/%: % Makefile
	@mkdir -p $(@D)
	sed -e '/^ *\/\/ /d; /^ *\/\*.*\*\/$$/d' -e "s, *// [^\`'\"]*\$$,," -e 's/^ *//' -e '/^$$/d' $< > $@.part && mv $@.part $@

$(BUILD)/starter.s: $(STARTER) tools/embed.sh
	@mkdir -p $(@D)
	sh tools/embed.sh embed_starter_table $(STARTER) > $@.part && mv $@.part $@

$(BUILD)/embed.o $(BUILD)/starter.o: %.o: %.s
	$(CC) -c -o $@ $<

$(BUILD)/tests/%: $(BUILD)/tests/%.o $(TESTLIB) $(TESTOBJ) $(BUILD)/embed.o
	$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $^ $(LDLIBS) -lcmocka

# Its allocations can be made to fail, in our own code alone.
$(BUILD)/tests/unit/test_alloc: override LDFLAGS += $(patsubst %,-Wl$(comma)--wrap=%,malloc calloc realloc aligned_alloc strdup)
comma := ,

# The program, with the fault layer: for tests of the server and the command line.
$(BUILD)/tests/restored: $(BUILD)/server/main.o $(TESTOBJ) $(BUILD)/embed.o $(BUILD)/tests/common/dlclose.o
	@mkdir -p $(@D)
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $^ $(LDLIBS)

# Tiny checkpoints and pictures of our own, made at test time.
$(BUILD)/make_fixtures: $(patsubst %.c,$(BUILD)/%.o,$(wildcard tests/fixtures/*.c)) $(BUILD)/tests/common/checkpoint_writer.o
	$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $^ -lpng -ljpeg -lz -lm

$(BUILD)/fixtures/.made: $(BUILD)/make_fixtures
	@mkdir -p $(@D)
	$< $(@D)
	@touch $@

# Pictures by other programs, in formats that we do not write byte by byte; one folder for all builds.
FORMATS := build/fixtures/formats
$(FORMATS)/.made: tests/fixtures/make_formats.sh
	@rm -rf $(@D)
	@mkdir -p $(@D)
	@sh $< $(@D)
	@touch $@

fixtures: $(BUILD)/fixtures/.made $(FORMATS)/.made

$(BUILD)/make_models: $(BUILD)/tests/bench/make_models.o $(patsubst %,$(BUILD)/runtime/models/%.o,model_random random random_faces random_pictures) \
                      $(patsubst %,$(BUILD)/runtime/base/%.o,error file mem spill thread utf8)
	$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $^ -lm

$(BUILD)/bench_image: $(BUILD)/tests/bench/bench_image.o $(patsubst %,$(BUILD)/runtime/base/%.o,error file log mem spill thread utf8) \
                      $(patsubst %.c,$(BUILD)/%.o,$(wildcard server/image/*.c))
	$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $^ $(PICTURELIBS) -lz -lm -pthread

$(BUILD)/bench_http_bare: $(BUILD)/tests/bench/bench_http_bare.o
	$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $^ -lmicrohttpd

STORELIB := $(patsubst %,$(BUILD)/runtime/base/%.o,error file log mem spill thread utf8) \
            $(patsubst %.c,$(BUILD)/%.o,$(wildcard server/store/store*.c server/store/hook_rows.c server/store/query.c server/store/pg.c))
$(BUILD)/bench_store: $(BUILD)/tests/bench/bench_store.o $(STORELIB)
	$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $^ -lsqlite3 $(LIBPQLIBS) -lm

$(BUILD)/s3_tool $(BUILD)/bench_cluster: $(BUILD)/%: $(BUILD)/tests/bench/%.o $(STORELIB) \
                  $(patsubst %.c,$(BUILD)/%.o,$(wildcard server/store/s3*.c server/store/payload*.c))
	$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $^ -lcurl -lsqlite3 $(LIBPQLIBS) -lnettle -lm

# The long form of the suites that have one: the networks in their official sizes on the CPU against the oracle, and every single
# allocation refused and fault injected. About an hour.
check-long: deps-check
	@RESTORED_FULL=1 sh tests/check.sh $(or $(SUITES),unit ops golden chaos browser)

# The networks in their official sizes on any device beside PyTorch, where $(PYTHON) has it.
PYTHON ?= python3
check-torch: restored
	@$(PYTHON) tests/bench/compare_torch.py ./restored $(ARGS)

# How good the results are, from the built program. PYTHON needs numpy and PIL.
check-quality: restored
	@$(PYTHON) tests/quality/check_quality.py ./restored $(if $(PARTS),--only $(PARTS)) $(ARGS)

# The CPU device as aarch64 has it, cross-built, under qemu-user. On Debian this needs `dpkg --add-architecture arm64`,
# gcc-aarch64-linux-gnu, qemu-user, and for arm64: libmicrohttpd-dev libcurl4-gnutls-dev libgnutls28-dev libjansson-dev libpng-dev libjpeg-dev nettle-dev
# libvulkan-dev libcmocka-dev (apt-get install libjansson-dev:arm64 …).
ARM64 := $(patsubst %,build-arm64/tests/%,unit/test_cpu unit/test_graph unit/test_weights ops/test_convolutions ops/test_operators golden/test_networks)
check-arm64:
	$(MAKE) BUILD=build-arm64 CC=aarch64-linux-gnu-gcc PICTURES= LIBPQ= $(ARM64)
	set -e; for test in $(ARM64); do RESTORED_TEST_DEVICE=cpu VK_ICD_FILENAMES=none qemu-aarch64 $$test; done

# What tests need of npm, by tests/package-lock.json; the cache is here for users whose home cannot be written.
tests/node_modules/.made: tests/package.json tests/package-lock.json
	cd tests && npm ci --cache=$(abspath $(BUILD))/cache/npm --no-audit --no-fund --loglevel=error
	@touch $@

objects: $(LIBOBJ) $(TESTOBJ) $(BUILD)/server/main.o $(TESTLIB) $(patsubst %.c,$(BUILD)/%.o,$(TESTS)) # compiled, not linked
tests: $(TESTBIN) $(BUILD)/tests/restored $(BUILD)/make_models $(BUILD)/bench_image $(BUILD)/s3_tool
unit: $(filter $(BUILD)/tests/unit/%,$(TESTBIN))
shaders: $(SPIRV)

# -g1: lines in what they report, and no more; it saves a fifth of the compiler's time.
SANITIZE := -O1 -g1 -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer
asan:
	$(MAKE) BUILD=build-asan CFLAGS='$(SANITIZE)' unit
asan-server:
	$(MAKE) BUILD=build-asan CFLAGS='$(SANITIZE)' build-asan/tests/restored
THREADS := queue events share_desk store_list store_shared keeper keeper_shared devices codec_jpeg jpeg_encode thread worker_pool worker_jobs
tsan: # what threads share; tests/check.sh reads the line above
	$(MAKE) BUILD=build-tsan CFLAGS='-O1 -g1 -fsanitize=thread -fno-omit-frame-pointer' \
	    $(THREADS:%=build-tsan/tests/unit/test_%)
clang: # its warnings are the same without optimising
	$(MAKE) BUILD=build-clang CC=clang CFLAGS=-O0 objects

# The fuzzers of what reads checkpoints, pictures and the store of jobs, on files made by make_corpus and make_fixtures. `make fuzz` lets
# libFuzzer work on each for FUZZ_SECONDS, on all processors, and keeps what it finds in build-fuzz/found; `make fuzz-build` only
# builds them, for tests/fuzz/fuzz.sh. `make fuzz-replay` feeds them the
# corpus and FUZZ_MUTATIONS fixed variants of each file, with any compiler; fuzz_model, which runs networks, and fuzz_formats, whose
# readers are slow, a twentieth of them, fuzz_profile, which makes tables, a fortieth, fuzz_decoder, which starts processes, fewer, and
# fuzz_store, which writes files, a quarter.
FUZZ_SECONDS   ?= 60
FUZZ_MUTATIONS ?= 2000
FUZZLIB := $(BUILD)/tests/fuzz/exercise.o $(BUILD)/embed.o $(TESTOBJ)
fuzz: fuzz-build
	@sh tests/fuzz/fuzz.sh $(FUZZ_SECONDS)
fuzz-build:
	$(MAKE) BUILD=build-fuzz CC=clang \
	    CFLAGS='-O1 -g -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=undefined' fuzz-objects
fuzz-replay:
	$(MAKE) BUILD=build-asan CFLAGS='$(SANITIZE)' fuzz-replay-run

fuzz-objects: $(FUZZERS:%=$(BUILD)/fuzz/%) $(BUILD)/corpus/.made
fuzz-replay-run: $(FUZZERS:%=$(BUILD)/replay/%) $(BUILD)/corpus/.made
	@set -e; for f in $(FUZZERS); do n=$(FUZZ_MUTATIONS); \
	    case $$f in fuzz_model | fuzz_formats) n=$$((n / 20)) ;; fuzz_profile) n=$$((n / 40)) ;; fuzz_decoder) n=$$((n / 200)) ;; fuzz_store) n=$$((n / 4)) ;; esac; \
	    $(BUILD)/replay/$$f $$n $(BUILD)/corpus/$$f; done

# Only patterns lead to these; named here, they are kept.
$(patsubst %.c,$(BUILD)/%.o,$(wildcard tests/fuzz/*.c)):

$(BUILD)/fuzz/%: $(BUILD)/tests/fuzz/%.o $(FUZZLIB)
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) -fsanitize=fuzzer $(LDFLAGS) -o $@ $^ $(LDLIBS)
$(BUILD)/replay/%: $(BUILD)/tests/fuzz/%.o $(BUILD)/tests/fuzz/replay.o $(FUZZLIB)
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $^ $(LDLIBS)
$(BUILD)/tests/fuzz/make_corpus: $(BUILD)/tests/fuzz/make_corpus.o $(BUILD)/tests/common/checkpoint_writer.o \
                                 $(BUILD)/tests/common/picture_writer.o $(STORELIB)
	$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $^ -lpng -ljpeg -lsqlite3 $(LIBPQLIBS) $(PICTURELIBS) -lz -lm
TINY_FAMILIES := plksr_x1_dysample dncnn_level drunet_gray fbcnn_gray span_x4_plain cugan_x2_pro
$(BUILD)/corpus/.made: $(BUILD)/tests/fuzz/make_corpus $(BUILD)/make_fixtures $(FORMATS)/.made
	rm -rf $(@D)
	mkdir -p $(@D)/fuzz_model
	$< $(@D)
	$(BUILD)/make_fixtures --tiny $(@D)/fuzz_model
	cp $(patsubst %,tests/golden/families/%.safetensors,$(TINY_FAMILIES)) $(@D)/fuzz_model
	{ cat tests/golden/families/ncnn_cugan_x2.param; printf '\0'; cat tests/golden/families/ncnn_cugan_x2.bin; } \
	    > $(@D)/fuzz_ncnn/cugan
	mkdir -p $(@D)/fuzz_formats
	cp $(patsubst %,$(FORMATS)/%,lossy.webp alpha.webp moves.webp turned.tif alpha.tif jpeg.tif fax.tif palette.tif tiles.tif planes.tif \
	    big.tif pages.tif twelve.tif four.tif turned.heic alpha.heic pages.heic lossy.avif lossy.jxl alpha.jxl turned.jxl moves.jxl noted.jp2 alpha.jp2 \
	    lossy.j2k) $(@D)/fuzz_formats
	exiftool -q -IPTC:By-line=Anna -o $(@D)/fuzz_formats/iptc.tif $(FORMATS)/turned.tif
	mkdir -p $(@D)/fuzz_decoder
	cp $(@D)/fuzz_formats/* $(@D)/fuzz_codec/* $(@D)/fuzz_decoder
	@touch $@

# The sub-make prints nothing when there is nothing to do.
run:
	@sh tools/deps.sh run
	@$(MAKE) --no-print-directory -s -j$(shell nproc) restored
	@echo 'restored is built. Starting ./restored serve; stop it with Ctrl-C.'
	@exec ./restored serve $(ARGS)

check: deps-check
	@sh tests/check.sh $(SUITES)

deps:
	@sh tools/deps.sh run

deps-check:
	@sh tools/deps.sh check

models:
	@sh tools/deps.sh run
	@$(MAKE) --no-print-directory -s -j$(shell nproc) restored
	@./restored models get --to models/official $(if $(MODELS_MIRROR),--mirror '$(MODELS_MIRROR)') $(or $(MODELS),default)

# Which small mistakes in the sources no test would notice: some seconds a mutant, a minute where the server's tests run.
mutate: deps-check
	@node tests/mutate/mutate.mjs $(ARGS)

san: deps-check
	@sh tests/check.sh asan tsan

lint:
	@sh tests/lint/lint.sh

# static/sample.jpg itself is made by models/training/make_sample.py from the training pack.
sample: restored
	./restored restore static/sample.jpg -o models/sample_restored.jpg --quality 88 --device cpu \
	    -v starter --detector starter --bg_upsampler starter --default_parser starter

# Pictures of the page and of the sample, for the documentation.
figures: restored tests/node_modules/.made
	node tests/browser/figures.mjs docs/figures

# Tables in markdown: on the device that would be taken, and on a GPU or not at all.
bench: restored fixtures $(BUILD)/bench_image
	@sh tests/bench/bench.sh ./restored default
bench-cpu: restored fixtures $(BUILD)/bench_image
	@sh tests/bench/bench.sh ./restored cpu
bench-gpu: restored fixtures $(BUILD)/bench_image
	@sh tests/bench/bench.sh ./restored gpu

bench-start: restored $(BUILD)/make_models
	@$(BUILD)/make_models $(BUILD)/bench/models
	@python3 tests/bench/bench_start.py ./restored $(BUILD)/bench/models

bench-memory: restored
	@python3 tests/bench/bench_memory.py ./restored $(ARGS)

bench-large: restored
	@python3 tests/bench/bench_large.py ./restored --folder $(BUILD) $(ARGS)

bench-inks: restored
	@python3 tests/bench/bench_inks.py ./restored $(ARGS)

bench-store: $(BUILD)/bench_store
	@rm -f $(BUILD)/bench_store.db*
	@$(BUILD)/bench_store $(BUILD)/bench_store.db

bench-jobs: restored $(BUILD)/bench_store
	@python3 tests/bench/bench_jobs.py ./restored $(BUILD)/bench_store $(ARGS)

bench-http: restored $(BUILD)/bench_http_bare
	@python3 tests/bench/bench_http.py ./restored $(BUILD)/bench_http_bare $(ARGS)

bench-page: restored fixtures tests/node_modules/.made
	@node tests/bench/bench_page.mjs $(ARGS)

bench-health: restored
	@python3 tests/bench/bench_health.py ./restored $(ARGS)

# One hour, or ARGS minutes.
soak: restored fixtures
	@node tests/chaos/soak.mjs $(ARGS)

# Several machines in small; CHAOS_SECONDS, CHAOS_SEED.
chaos: restored fixtures tests/node_modules/.made
	@node tests/chaos/cluster.mjs

bench-cluster: restored $(BUILD)/tests/restored fixtures $(BUILD)/bench_cluster tests/node_modules/.made
	@node tests/bench/bench_cluster.mjs

bench-share: restored $(BUILD)/tests/restored fixtures
	@sh tests/postgres.sh node tests/bench/bench_share.mjs $(BENCH_ARGS)

bench-load: restored $(BUILD)/make_models
	@$(BUILD)/make_models $(BUILD)/bench/models
	@sh tests/bench/load.sh ./restored $(BUILD)/bench/models

debug:
	$(MAKE) BUILD=build-debug CFLAGS='-DRESTORED_FAULTS -O0 -g3 -fno-omit-frame-pointer' build-debug/restored

format:
	clang-format -i $(shell git ls-files '*.c' '*.h')

PREFIX ?= /usr/local
MONITORING := config/grafana.json config/alerts.yml
# With these, in their folders, the links of README.md and docs/ lead somewhere.
DOCFILES := $(wildcard docs/*.md docs/figures/*) $(wildcard config/restored.* config/deploy/*.yml config/deploy/kubernetes/*) config/Containerfile config/models.conf $(MONITORING) models/README.md \
    models/starter/LICENSE models/training/make_sample.py \
    $(wildcard examples/*.* examples/immich/*) $(patsubst %,%/README.md,runtime server shaders static/js tests)
DOCS   := $(DESTDIR)$(PREFIX)/share/doc/restored
# What systemd and bash read, and tools for Prometheus and Grafana.
UNITDIR     ?= $(PREFIX)/lib/systemd/system
SYSUSERSDIR ?= $(PREFIX)/lib/sysusers.d
COMPLETIONS ?= $(PREFIX)/share/bash-completion/completions
# Manual pages and completion are made from what the program says of itself.
$(BUILD)/man/.made: restored tools/man.sh
	sh tools/man.sh ./restored $(@D)
	@touch $@
$(BUILD)/completion/restored: restored tools/completion.sh config/models.conf
	@mkdir -p $(@D)
	sh tools/completion.sh ./restored config/models.conf > $@.part && mv $@.part $@

# The configuration of an earlier installation stays as it is. Models belong into PREFIX/share/restored/models.
install: restored $(BUILD)/man/.made $(BUILD)/completion/restored
	install -Dm755 restored $(DESTDIR)$(PREFIX)/bin/restored
	install -Dm644 -t $(DESTDIR)$(PREFIX)/share/man/man1 $(BUILD)/man/*.1
	install -Dm644 -t $(DESTDIR)$(COMPLETIONS) $(BUILD)/completion/restored
	install -Dm644 -t $(DESTDIR)$(PREFIX)/share/restored $(MONITORING)
	install -Dm644 config/restored.sysusers $(DESTDIR)$(SYSUSERSDIR)/restored.conf
	install -Dm644 config/restored.service $(DESTDIR)$(UNITDIR)/restored.service
	sed -i 's|^ExecStart=/usr/|ExecStart=$(PREFIX)/|' $(DESTDIR)$(UNITDIR)/restored.service
	install -Dm644 -t $(DOCS) LICENSE README.md CHANGELOG.md SECURITY.md config/restored.conf
	for file in $(DOCFILES); do install -Dm644 $$file $(DOCS)/$$file || exit 1; done
	install -Dm644 models/starter/LICENSE $(DOCS)/LICENSE.starter-models
	test -e $(DESTDIR)$(SYSCONFDIR)/restored/restored.conf || \
	    install -Dm644 config/restored.conf $(DESTDIR)$(SYSCONFDIR)/restored/restored.conf

# Models stay, and so does a configuration that was changed.
uninstall:
	rm -f $(DESTDIR)$(PREFIX)/bin/restored $(DESTDIR)$(PREFIX)/share/man/man1/restored.1 \
	    $(DESTDIR)$(PREFIX)/share/man/man1/restored-*.1 $(DESTDIR)$(COMPLETIONS)/restored \
	    $(DESTDIR)$(SYSUSERSDIR)/restored.conf $(DESTDIR)$(UNITDIR)/restored.service \
	    $(MONITORING:config/%=$(DESTDIR)$(PREFIX)/share/restored/%)
	rm -rf $(DOCS)
	! cmp -s config/restored.conf $(DESTDIR)$(SYSCONFDIR)/restored/restored.conf || \
	    rm $(DESTDIR)$(SYSCONFDIR)/restored/restored.conf
	test ! -d $(DESTDIR)$(SYSCONFDIR)/restored || rmdir --ignore-fail-on-non-empty $(DESTDIR)$(SYSCONFDIR)/restored

deb: restored $(BUILD)/man/.made $(BUILD)/completion/restored
	@sh tools/deb.sh $(BUILD)

# As root; some minutes, the first time some more.
check-deb: restored
	@sh tests/deb.sh $$(sh tools/deb.sh $(BUILD))

# Two copies of the tree, in folders of other names, give the same program byte by byte.
check-reproducible:
	@sh tests/reproducible.sh

clean:
	rm -rf build build-* restored

.PHONY: FORCE chaos bench-inks bench-cluster bench-share check-quality asan-server soak bench-http bench-jobs deb check-deb bench-health bench-page uninstall check-reproducible all mutate check-long check-torch check-arm64 bench bench-cpu bench-gpu bench-large bench-load bench-memory bench-start bench-store clean fuzz fuzz-build fuzz-objects fuzz-replay fuzz-replay-run objects tests unit asan tsan clang shaders fixtures run check deps deps-check models sample san lint debug format figures install
-include $(shell find $(BUILD) -name '*.d' -type f 2>/dev/null)
