# restored: everything is built, tested and run from here. `make run` and `make check` are all a user needs.
#   make            ./restored (installs nothing)        make run      install what is missing, build, serve
#   make check      install what tests need, run all     make models   download the official checkpoints
#   make san        ASan+UBSan unit tests                make fuzz     fuzz the readers (clang)
#   make bench      time the networks                    make lint     layering, naming, operator places
CC       ?= cc
BUILD    ?= build
CFLAGS   ?= -O2 -g
WARN     := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla -Wundef
CPPFLAGS += -I. -D_GNU_SOURCE
override CFLAGS += -std=c17 $(WARN) -ffp-contract=off -fno-math-errno -pthread $(if $(CI),-Werror)
LDLIBS   := -lmicrohttpd -lvulkan -ljansson -lpng -ljpeg -lz -lm -pthread
GLSLC    := glslc

RUNTIME  := $(wildcard runtime/*.c runtime/*/*.c)
SERVER   := $(wildcard server/*.c server/*/*.c)
SHADERS  := $(wildcard shaders/*.comp)
# Files served or read by the program itself: the page, and what is known of the official models.
STATIC   := $(wildcard static/*) config/models.conf
LIBOBJ   := $(patsubst %.c,$(BUILD)/%.o,$(filter-out server/main.c,$(RUNTIME) $(SERVER)))
TESTS    := $(wildcard tests/unit/test_*.c tests/ops/test_*.c tests/golden/test_*.c)
TESTBIN  := $(patsubst %.c,$(BUILD)/%,$(TESTS))
TESTLIB  := $(patsubst %.c,$(BUILD)/%.o,$(wildcard tests/common/*.c))
FUZZERS  := $(patsubst tests/fuzz/%.c,%,$(wildcard tests/fuzz/fuzz_*.c))

all: restored

restored: $(BUILD)/restored
	@cp $< $@

$(BUILD)/restored: $(BUILD)/server/main.o $(LIBOBJ) $(BUILD)/embed.o
	$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $^ $(LDLIBS)

$(BUILD)/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) $(CFLAGS) -MMD -MP -c -o $@ $<

# The oracle's loops are plain C; let the compiler vectorise them.
$(BUILD)/runtime/cpu/cpu_ref.o: override CFLAGS += -O3

# Each shader is compiled for fp32 and for fp16 storage, then all SPIR-V and the page go into one object.
SPIRV := $(foreach s,$(SHADERS),$(patsubst shaders/%.comp,$(BUILD)/shaders/%.f32.spv,$(s)) $(patsubst shaders/%.comp,$(BUILD)/shaders/%.f16.spv,$(s)))

$(BUILD)/shaders/%.f32.spv: shaders/%.comp $(wildcard shaders/include/*)
	@mkdir -p $(@D)
	$(GLSLC) --target-env=vulkan1.1 -O -DFP16=0 -I shaders/include -o $@ $<

$(BUILD)/shaders/%.f16.spv: shaders/%.comp $(wildcard shaders/include/*)
	@mkdir -p $(@D)
	$(GLSLC) --target-env=vulkan1.1 -O -DFP16=1 -I shaders/include -o $@ $<

$(BUILD)/embed.s: $(SPIRV) $(STATIC) tools/embed.sh
	sh tools/embed.sh $(SPIRV) $(STATIC) > $@.part && mv $@.part $@

$(BUILD)/embed.o: $(BUILD)/embed.s
	$(CC) -c -o $@ $<

$(BUILD)/tests/%: $(BUILD)/tests/%.o $(TESTLIB) $(LIBOBJ) $(BUILD)/embed.o
	$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $^ $(LDLIBS) -lcmocka

clean:
	rm -rf build build-* restored

.SECONDARY:
.PHONY: all clean
-include $(shell find $(BUILD) -name '*.d' 2>/dev/null)
