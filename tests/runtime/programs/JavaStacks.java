import java.io.FileOutputStream;
import java.io.RandomAccessFile;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.List;
import java.util.concurrent.Executors;
import java.util.stream.Collectors;

/** Writes, each time, the stack that it sees itself: method and line of each of its frames, innermost first. */
public class JavaStacks {
    static Path folder;

    static byte[] stack() {
        return StackWalker.getInstance().walk(frames -> frames.skip(1)
            .filter(frame -> frame.getFileName() != null && frame.getFileName().equals("JavaStacks.java"))
            .map(frame -> frame.getClassName() + "." + frame.getMethodName() + ":" + frame.getLineNumber())
            .collect(Collectors.joining("\n"))).getBytes();
    }

    static class Inner {
        Inner(String name) throws Exception {
            try (FileOutputStream out = new FileOutputStream(folder.resolve(name).toFile())) {
                out.write(stack());
            }
        }
    }

    static void deep(int levels, String name) throws Exception {
        if (levels > 0) {
            deep(levels - 1, name);
            return;
        }
        try (RandomAccessFile file = new RandomAccessFile(folder.resolve(name).toFile(), "rw")) {
            file.write(stack());
        }
    }

    static void channel(String name) {
        try (FileChannel file = FileChannel.open(folder.resolve(name), StandardOpenOption.CREATE, StandardOpenOption.WRITE)) {
            file.write(ByteBuffer.wrap(stack()));
        } catch (Exception error) {
            throw new RuntimeException(error);
        }
    }

    public static void main(String[] words) throws Exception {
        folder = Path.of(words[0]);
        Files.write(folder.resolve("whole"), stack());
        new Inner("inner");
        deep(20, "deep");
        List.of("listed").forEach(name -> channel(name));
        Thread thread = new Thread(() -> channel("thread"));
        thread.start();
        thread.join();
        var pool = Executors.newSingleThreadExecutor();
        pool.submit(() -> channel("pooled")).get();
        pool.shutdown();
        for (int i = 0; i < 3000; i++) {
            channel("compiled");
        }
        System.out.println(System.getenv() + " " + System.getProperty("sun.java.command"));
    }
}
